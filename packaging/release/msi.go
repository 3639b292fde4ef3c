package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // what RFC 9562 makes name-based UUIDs with
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	source := filepath.Join(b.work, "mcpd.wxs")
	text := wxs(b.version, b.binary(t), filepath.Join(b.root, "LICENSE"), filepath.Join(b.share(), "completions", "mcpd.ps1"))
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return err
	}
	for _, f := range []string{b.binary(t), filepath.Join(b.root, "LICENSE"), filepath.Join(b.share(), "completions", "mcpd.ps1")} {
		if err := os.Chtimes(f, b.epoch, b.epoch); err != nil && strings.HasPrefix(f, b.work) {
			return err
		}
	}
	_, err := b.command(ctx, b.work, nil, "wixl", "--arch", arch, "--output", filepath.Join(b.out, name), source)
	return err
}

// numeric is the part of a version that Windows Installer compares.
func numeric(version string) string {
	n, _, _ := strings.Cut(version, "-")
	return n
}

// wxs is the source of the installer.
func wxs(version, program, license, completion string) string {
	return fmt.Sprintf(`<?xml version="1.0" encoding="utf-8"?>
<Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">
  <Product Id="%[1]s" Name="mcpd" Language="1033" Version="%[2]s" Manufacturer="The mcpd authors" UpgradeCode="%[3]s">
    <Package Id="%[4]s" InstallerVersion="500" Compressed="yes" InstallScope="perMachine"
             Description="mcpd %[5]s" Comments="One daemon for all local MCP servers" Manufacturer="The mcpd authors" />
    <MajorUpgrade AllowSameVersionUpgrades="yes" DowngradeErrorMessage="A newer mcpd is installed already." />
    <Media Id="1" Cabinet="mcpd.cab" EmbedCab="yes" />
    <Property Id="ARPNOMODIFY" Value="1" />
    <Directory Id="TARGETDIR" Name="SourceDir">
      <Directory Id="ProgramFiles64Folder">
        <Directory Id="INSTALLDIR" Name="mcpd">
          <Component Id="Program" Guid="%[6]s" Win64="yes">
            <File Id="mcpd.exe" Name="mcpd.exe" Source="%[7]s" KeyPath="yes" />
            <Environment Id="Path" Name="PATH" Value="[INSTALLDIR]" Permanent="no" Part="last" Action="set" System="yes" />
          </Component>
          <Component Id="Texts" Guid="%[8]s" Win64="yes">
            <File Id="LICENSE" Name="LICENSE.txt" Source="%[9]s" KeyPath="yes" />
            <File Id="mcpd.ps1" Name="mcpd-completion.ps1" Source="%[10]s" />
          </Component>
        </Directory>
      </Directory>
    </Directory>
    <Feature Id="Complete" Level="1">
      <ComponentRef Id="Program" />
      <ComponentRef Id="Texts" />
    </Feature>
    <!-- Before the program goes, the services that run it are taken out. Files of users stay. -->
    <CustomAction Id="RemoveService" FileKey="mcpd.exe" ExeCommand="service uninstall --system" Execute="deferred" Impersonate="no" Return="ignore" />
    <CustomAction Id="RemoveTask" FileKey="mcpd.exe" ExeCommand="service uninstall" Execute="deferred" Impersonate="yes" Return="ignore" />
    <InstallExecuteSequence>
      <Custom Action="RemoveService" Before="RemoveFiles">REMOVE="ALL" AND NOT UPGRADINGPRODUCTCODE</Custom>
      <Custom Action="RemoveTask" Before="RemoveFiles">REMOVE="ALL" AND NOT UPGRADINGPRODUCTCODE</Custom>
    </InstallExecuteSequence>
  </Product>
</Wix>
`, uuid("product", version), numeric(version), upgradeCode, uuid("package", version), escape(version),
		uuid("component", "program"), escape(program), uuid("component", "texts"), escape(license), escape(completion))
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
