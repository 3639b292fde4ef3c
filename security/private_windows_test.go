package security

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// grantEveryone adds an entry for everybody to the access list of path.
func grantEveryone(t *testing.T, path string, access windows.ACCESS_MASK) {
	t.Helper()
	descriptor, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := descriptor.DACL()
	if err != nil {
		t.Fatal(err)
	}
	everyone, err := windows.CreateWellKnownSid(windows.WinWorldSid)
	if err != nil {
		t.Fatal(err)
	}
	list, err := windows.ACLFromEntries([]windows.EXPLICIT_ACCESS{{
		AccessPermissions: access,
		AccessMode:        windows.GRANT_ACCESS,
		Trustee: windows.TRUSTEE{
			TrusteeForm:  windows.TRUSTEE_IS_SID,
			TrusteeType:  windows.TRUSTEE_IS_WELL_KNOWN_GROUP,
			TrusteeValue: windows.TrusteeValueFromSID(everyone),
		},
	}}, old)
	if err != nil {
		t.Fatal(err)
	}
	if err := windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION, nil, nil, list, nil); err != nil {
		t.Fatal(err)
	}
}

func TestWhatOthersCanReadIsRefusedWithTheCommandThatMendsIt(t *testing.T) {
	for _, file := range []string{plainFile, hashFile, ""} {
		dir := stateDir(t)
		openStore(t, dir)
		path := filepath.Join(dir, file)
		grantEveryone(t, path, windows.GENERIC_READ)
		_, err := OpenTokenStore(dir, TokenStoreOptions{})
		notPrivate, ok := errors.AsType[*NotPrivateError](err)
		if !ok || !strings.Contains(notPrivate.Fix, "icacls") {
			t.Errorf("%q: error %v", file, err)
		}
	}
}

func TestAccessListsAreProtectedAndNameTheOwner(t *testing.T) {
	skipUnderWine(t)
	dir := stateDir(t)
	openStore(t, dir)
	for _, file := range []string{plainFile, hashFile, ""} {
		descriptor, err := windows.GetNamedSecurityInfo(filepath.Join(dir, file), windows.SE_FILE_OBJECT,
			windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
		if err != nil {
			t.Fatal(err)
		}
		control, _, err := descriptor.Control()
		if err != nil || control&windows.SE_DACL_PROTECTED == 0 {
			t.Errorf("%q: control %x, %v", file, control, err)
		}
	}
}

// skipUnderWine skips what Wine's file system does not keep: it maps access
// lists to mode bits and shows no reparse points.
func skipUnderWine(t *testing.T) {
	t.Helper()
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil {
		t.Skip("Wine keeps neither protected access lists nor links")
	}
}

// TestWhichEntriesOpenAFile checks the reading of access lists that no file
// system is needed for.
func TestWhichEntriesOpenAFile(t *testing.T) {
	trusted, err := trustedSIDs()
	if err != nil {
		t.Fatal(err)
	}
	if other, err := trusted.other(nil); err != nil || other == "" {
		t.Errorf("no list at all: open to %q, %v", other, err)
	}
	user := trusted.user.String()
	for sddl, open := range map[string]bool{
		"D:P(A;;FA;;;" + user + ")(A;;FA;;;SY)(A;;FA;;;BA)": false,
		"D:P(A;;FA;;;" + user + ")(A;OICIIO;FA;;;CO)":       false,
		"D:P(D;;FA;;;WD)(A;;FA;;;" + user + ")":             false,
		"D:P":                                               false,
		"D:P(A;;FA;;;" + user + ")(A;;FR;;;WD)":             true,
		"D:P(A;;FA;;;" + user + ")(A;;FR;;;BU)":             true,
		"D:P(A;;FA;;;" + user + ")(A;;0x2;;;AU)":            true,
		"D:P(A;;FA;;;" + user + ")(A;;0x120080;;;WD)":       false, // attributes only
	} {
		descriptor, err := windows.SecurityDescriptorFromString(sddl)
		if err != nil {
			t.Errorf("%s: %v", sddl, err)
			continue
		}
		dacl, _, err := descriptor.DACL()
		if err != nil && !errors.Is(err, windows.ERROR_OBJECT_NOT_FOUND) {
			t.Errorf("%s: %v", sddl, err)
			continue
		}
		other, err := trusted.other(dacl)
		if err != nil || (other != "") != open {
			t.Errorf("%s: open to %q, %v; want open: %v", sddl, other, err, open)
		}
	}
}

func TestALinkIsNotFollowed(t *testing.T) {
	skipUnderWine(t)
	dir := stateDir(t)
	openStore(t, dir)
	path := filepath.Join(dir, plainFile)
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".moved", path); err != nil {
		t.Skipf("links need a right that this account lacks: %v", err)
	}
	if _, err := OpenTokenStore(dir, TokenStoreOptions{}); err == nil {
		t.Error("a link was followed")
	}
}
