package security

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Windows has no mode bits. A private file has a protected access list (one
// that takes nothing from the folder above) with three entries: the user, the
// system and the administrators. The last two can read every file anyway.

// harmlessAccess is what others may hold without seeing or changing anything.
const harmlessAccess = windows.READ_CONTROL | windows.SYNCHRONIZE | windows.FILE_READ_ATTRIBUTES

// openPrivate opens a file for reading and checks the opened handle. The file
// may be replaced or removed while it is open.
func openPrivate(path string) (*os.File, error) {
	handle, err := openHandle(path, windows.GENERIC_READ, windows.FILE_FLAG_OPEN_REPARSE_POINT)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(handle), path)
	if err := checkPrivate(handle, path, false); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkPrivateDir(path string) error {
	handle, err := openHandle(path, windows.FILE_READ_ATTRIBUTES|windows.READ_CONTROL, windows.FILE_FLAG_BACKUP_SEMANTICS)
	if err != nil {
		return err
	}
	return errors.Join(checkPrivate(handle, path, true), windows.CloseHandle(handle))
}

func openHandle(path string, access, flags uint32) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	handle, err := windows.CreateFile(name, access, share, nil, windows.OPEN_EXISTING, flags, 0)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return handle, nil
}

func checkPrivate(handle windows.Handle, path string, dir bool) error {
	kind, err := windows.GetFileType(handle)
	if err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	var info windows.ByHandleFileInformation
	if kind == windows.FILE_TYPE_DISK {
		if err := windows.GetFileInformationByHandle(handle, &info); err != nil {
			return &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	isDir := info.FileAttributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0
	switch {
	case dir && !isDir:
		return fmt.Errorf("%s is not a folder", path)
	case !dir && info.FileAttributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0:
		return &NotPrivateError{
			Path: path, Problem: "is a link, which mcpd does not follow here",
			Fix: "put the file itself in its place",
		}
	case !dir && (isDir || kind != windows.FILE_TYPE_DISK):
		return &NotPrivateError{Path: path, Problem: "is not a regular file", Fix: "move it away"}
	}

	trusted, err := trustedSIDs()
	if err != nil {
		return err
	}
	descriptor, err := windows.GetSecurityInfo(handle, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("reading who may use %s: %w", path, err)
	}
	owner, _, err := descriptor.Owner()
	if err != nil {
		return fmt.Errorf("reading who owns %s: %w", path, err)
	}
	if !trusted.owner(owner) {
		return &NotPrivateError{
			Path:    path,
			Problem: fmt.Sprintf("belongs to %s, not to the user mcpd runs as", accountName(owner)),
			Fix:     fmt.Sprintf(`run mcpd as its owner, or: takeown /f "%s"`, path),
		}
	}
	dacl, _, err := descriptor.DACL()
	if err != nil && !errors.Is(err, windows.ERROR_OBJECT_NOT_FOUND) {
		return fmt.Errorf("reading who may use %s: %w", path, err)
	}
	other, err := trusted.other(dacl)
	if err != nil {
		return fmt.Errorf("reading who may use %s: %w", path, err)
	}
	if other == "" {
		return nil
	}
	rights := "F"
	if dir {
		rights = "(OI)(CI)F"
	}
	return &NotPrivateError{
		Path:    path,
		Problem: "is open to " + other,
		Fix:     fmt.Sprintf(`icacls "%s" /inheritance:r /grant:r "%%USERNAME%%:%s"`, path, rights),
	}
}

// sids are the accounts that a private file may be open to.
type sids struct {
	user    *windows.SID
	system  *windows.SID
	admins  *windows.SID
	creator *windows.SID // stands for whoever creates a file in the folder
	rights  *windows.SID // stands for the owner
}

func trustedSIDs() (*sids, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("finding the user mcpd runs as: %w", err)
	}
	s := &sids{user: user.User.Sid}
	for _, known := range []struct {
		sid  **windows.SID
		kind windows.WELL_KNOWN_SID_TYPE
	}{
		{&s.system, windows.WinLocalSystemSid},
		{&s.admins, windows.WinBuiltinAdministratorsSid},
		{&s.creator, windows.WinCreatorOwnerSid},
		{&s.rights, windows.WinCreatorOwnerRightsSid},
	} {
		if *known.sid, err = windows.CreateWellKnownSid(known.kind); err != nil {
			return nil, fmt.Errorf("finding a system account: %w", err)
		}
	}
	return s, nil
}

// owner reports whether sid may own a private file. What an elevated process
// creates belongs to the administrators.
func (s *sids) owner(sid *windows.SID) bool {
	return sid != nil && (sid.Equals(s.user) || sid.Equals(s.system) || sid.Equals(s.admins))
}

// other returns the name of an account beyond the trusted ones that dacl lets
// in, or "". No list at all lets everybody in.
func (s *sids) other(dacl *windows.ACL) (string, error) {
	if dacl == nil {
		return "everyone", nil
	}
	for i := range uint32(dacl.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(dacl, i, &ace); err != nil {
			return "", err
		}
		switch ace.Header.AceType {
		case windows.ACCESS_DENIED_ACE_TYPE:
			continue
		case windows.ACCESS_ALLOWED_ACE_TYPE:
		default:
			// Conditional and object entries: what they allow depends on more
			// than is looked at here.
			return "accounts named in an unusual access entry", nil
		}
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart))
		if ace.Mask&^harmlessAccess == 0 || s.owner(sid) || sid.Equals(s.creator) || sid.Equals(s.rights) {
			continue
		}
		return accountName(sid), nil
	}
	return "", nil
}

func accountName(sid *windows.SID) string {
	account, domain, _, err := sid.LookupAccount("")
	switch {
	case err != nil:
		return sid.String()
	case domain == "":
		return account
	default:
		return domain + `\` + account
	}
}

// privateAttributes are the security attributes of a new private file, or of a
// folder whose files take over its access list.
func privateAttributes(dir bool) (*windows.SecurityAttributes, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("finding the user mcpd runs as: %w", err)
	}
	sid, inherit := user.User.Sid.String(), ""
	if dir {
		inherit = "OICI"
	}
	descriptor, err := windows.SecurityDescriptorFromString(fmt.Sprintf(
		"O:%[1]sD:P(A;%[2]s;FA;;;%[1]s)(A;%[2]s;FA;;;SY)(A;%[2]s;FA;;;BA)", sid, inherit))
	if err != nil {
		return nil, fmt.Errorf("making an access list: %w", err)
	}
	attributes := &windows.SecurityAttributes{SecurityDescriptor: descriptor}
	attributes.Length = uint32(unsafe.Sizeof(*attributes))
	return attributes, nil
}

func createPrivate(path string) (*os.File, error) {
	attributes, err := privateAttributes(false)
	if err != nil {
		return nil, err
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	handle, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, attributes,
		windows.CREATE_NEW, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return os.NewFile(uintptr(handle), path), nil
}

func mkdirPrivate(path string) error {
	attributes, err := privateAttributes(true)
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	if err := windows.CreateDirectory(name, attributes); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// replaceFile renames within one folder. [os.Root] asks for POSIX semantics,
// with which a file can be replaced while it is open. File systems that lack
// them refuse for as long as another process, a virus scanner for example, has
// the file open; that passes.
func replaceFile(from, to string) error {
	root, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	const tries, pause = 20, 25 * time.Millisecond
	for try := 1; ; try++ {
		err = root.Rename(filepath.Base(from), filepath.Base(to))
		busy := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if err == nil || !busy || try == tries {
			return errors.Join(err, root.Close())
		}
		time.Sleep(pause)
	}
}

// syncDir has nothing to do: NTFS keeps renames in its journal, and a folder
// cannot be flushed without administrator rights.
func syncDir(string) error { return nil }
