package main

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // what RFC 9562 makes name-based UUIDs with
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// upgradeCode is the same in every version: by it Windows knows that a newer
// mcpd replaces an older one.
const upgradeCode = "7C6C2A0E-5C0B-5A0F-9D5B-6D637064A001"

// msi makes an installer for all users of a Windows machine.
func (b *build) msi(ctx context.Context, t target) error {
	name := fmt.Sprintf("mcpd_%s_%s_%s.msi", b.version, t.os, t.arch)
	arch := map[string]string{"amd64": "x64"}[t.arch]
	if arch == "" {
		b.skipped = append(b.skipped, name+": wixl makes installers for amd64 only; the zip has the program")
		return nil
	}
	if _, err := exec.LookPath("wixl"); err != nil {
		b.skipped = append(b.skipped, name+": wixl is not installed (Debian: apt-get install wixl)")
		return nil
	}
	b.say("msi for %s", t)
	// wixl wants names without folders, and takes over the time of files.
	dir := filepath.Join(b.work, "msi")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // nothing in it is private
		return err
	}
	for to, from := range map[string]string{
		"mcpd.exe":    b.binary(t),
		"LICENSE.txt": filepath.Join(b.root, "LICENSE"),
		"mcpd.ps1":    filepath.Join(b.share(), "completions", "mcpd.ps1"),
	} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		to = filepath.Join(dir, to)
		if err := os.WriteFile(to, data, 0o755); err != nil { //nolint:gosec // a program among them
			return err
		}
		if err := os.Chtimes(to, b.epoch, b.epoch); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mcpd.wxs"), []byte(wxs(b.version, b.publisher.vendor)), 0o600); err != nil {
		return err
	}
	installer := filepath.Join(b.out, name)
	if _, err := b.command(ctx, dir, nil, "wixl", "--arch", arch, "--output", installer, "mcpd.wxs"); err != nil {
		return err
	}
	return b.completeMSI(ctx, installer)
}

// completeMSI adds what wixl has no words for: the folder on the PATH, and that
// the services are taken out before the program goes.
func (b *build) completeMSI(ctx context.Context, installer string) error {
	idt := filepath.Join(b.work, "Environment.idt")
	if err := os.WriteFile(idt, []byte(environmentTable()), 0o600); err != nil {
		return err
	}
	if _, err := b.command(ctx, b.work, nil, "msibuild", installer, "-i", idt); err != nil {
		return err
	}
	args := []string{installer}
	for _, q := range additions() {
		args = append(args, "-q", q)
	}
	if _, err := b.command(ctx, b.work, nil, "msibuild", args...); err != nil {
		return err
	}
	if _, err := b.command(ctx, b.work, nil, "msibuild", installer, "-s",
		"mcpd "+b.version, b.publisher.vendor, "x64;1033", "{"+uuid("package", b.version)+"}"); err != nil {
		return err
	}
	data, err := os.ReadFile(installer) //nolint:gosec // our own
	if err != nil {
		return err
	}
	if err := setTimes(data, b.epoch); err != nil {
		return err
	}
	return os.WriteFile(installer, data, 0o644) //nolint:gosec // to be published
}

// setTimes puts a time of our choice into an installer's summary, where wixl
// writes the present (MS-OLEPS, PropertySet; properties 12 and 13).
func setTimes(data []byte, when time.Time) error {
	// FMTID_SummaryInformation, as it is in a file.
	format := []byte("\xe0\x85\x9f\xf2\xf9\x4f\x68\x10\xab\x91\x08\x00\x2b\x27\xb3\xd9")
	const headerSize, fileTime, created, saved = 28, 0x40, 12, 13
	le := binary.LittleEndian
	at := bytes.Index(data, format)
	if at < headerSize || at+20 > len(data) {
		return errors.New("the installer has no summary")
	}
	set := at - headerSize + int(le.Uint32(data[at+16:]))
	if set+8 > len(data) {
		return errors.New("the installer's summary is damaged")
	}
	done := 0
	for i := range int(le.Uint32(data[set+4:])) {
		entry := set + 8 + 8*i
		if entry+8 > len(data) {
			break
		}
		value := set + int(le.Uint32(data[entry+4:]))
		if id := le.Uint32(data[entry:]); id != created && id != saved {
			continue
		}
		if value+12 > len(data) || le.Uint32(data[value:]) != fileTime {
			break
		}
		// Steps of 100 ns since 1601.
		le.PutUint64(data[value+4:], uint64(when.Unix()+11644473600)*10_000_000) //nolint:gosec // after 1601
		done++
	}
	if done != 2 {
		return errors.New("the installer's summary has no times where they were expected")
	}
	return nil
}

// environmentTable puts the program's folder behind the machine's PATH, and
// takes it out again: = sets, - removes, * is the machine's, [~] is what is
// there (Windows Installer, Environment Table).
func environmentTable() string {
	return strings.Join([]string{
		"Environment\tName\tValue\tComponent_",
		"s72\tl255\tL255\ts72",
		"Environment\tEnvironment",
		"Path\t=-*PATH\t[~];[INSTALLDIR]\tProgram",
		"",
	}, "\r\n")
}

// additions are rows of other tables. A deferred custom action that runs an
// installed program and whose outcome does not matter has type 1106 as the user,
// 3154 as the system.
func additions() []string {
	const removal = `REMOVE="ALL" AND NOT UPGRADINGPRODUCTCODE`
	action := "INSERT INTO `CustomAction` (`Action`, `Type`, `Source`, `Target`) VALUES ('%s', %d, 'mcpd.exe', '%s')"
	sequence := "INSERT INTO `InstallExecuteSequence` (`Action`, `Condition`, `Sequence`) VALUES ('%s', '%s', %d)"
	return []string{
		fmt.Sprintf(action, "RemoveService", 3154, "service uninstall --system"),
		fmt.Sprintf(action, "RemoveTask", 1106, "service uninstall"),
		fmt.Sprintf(sequence, "RemoveService", removal, 3490),
		fmt.Sprintf(sequence, "RemoveTask", removal, 3491),
		fmt.Sprintf(sequence, "RemoveEnvironmentStrings", "", 3300),
		fmt.Sprintf(sequence, "WriteEnvironmentStrings", "", 5200),
	}
}

// numeric is the part of a version that Windows Installer compares.
func numeric(version string) string {
	n, _, _ := strings.Cut(version, "-")
	return n
}

// wxs is the source of the installer.
func wxs(version, vendor string) string {
	return fmt.Sprintf(`<?xml version="1.0" encoding="utf-8"?>
<Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">
  <Product Id="%[1]s" Name="mcpd" Language="1033" Version="%[2]s" Manufacturer="%[8]s" UpgradeCode="%[3]s">
    <Package Id="%[4]s" InstallerVersion="500" Compressed="yes" InstallScope="perMachine"
             Description="mcpd %[5]s" Comments="%[9]s" Manufacturer="%[8]s" />
    <MajorUpgrade DowngradeErrorMessage="A newer mcpd is installed already." />
    <Media Id="1" Cabinet="mcpd.cab" EmbedCab="yes" />
    <Property Id="ARPNOMODIFY" Value="1" />
    <Directory Id="TARGETDIR" Name="SourceDir">
      <Directory Id="ProgramFiles64Folder">
        <Directory Id="INSTALLDIR" Name="mcpd">
          <Component Id="Program" Guid="%[6]s" Win64="yes">
            <File Id="mcpd.exe" Name="mcpd.exe" Source="mcpd.exe" KeyPath="yes" />
          </Component>
          <Component Id="Texts" Guid="%[7]s" Win64="yes">
            <File Id="LICENSE" Name="LICENSE.txt" Source="LICENSE.txt" KeyPath="yes" />
            <File Id="mcpd.ps1" Name="mcpd-completion.ps1" Source="mcpd.ps1" />
          </Component>
        </Directory>
      </Directory>
    </Directory>
    <Feature Id="Complete" Level="1">
      <ComponentRef Id="Program" />
      <ComponentRef Id="Texts" />
    </Feature>
  </Product>
</Wix>
`, uuid("product", version), numeric(version), upgradeCode, uuid("package", version), escape(version),
		uuid("component", "program"), uuid("component", "texts"), escape(vendor), escape(summary))
}

// uuid is always the same for the same words (RFC 9562, version 5).
func uuid(words ...string) string {
	sum := sha1.Sum([]byte("mcpd/" + strings.Join(words, "/"))) //nolint:gosec // see above
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
