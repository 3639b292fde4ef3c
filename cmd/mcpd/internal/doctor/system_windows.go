package doctor

import "golang.org/x/sys/windows"

// othersCanRead has nothing to say: the files of a user's profile are closed to
// others by the access list of the profile.
func othersCanRead(string) (what, fix string) { return "", "" }

func othersCanWrite(string) (what, fix string) { return "", "" }

func freeSpace(dir string) (bytes, files uint64, err error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	if err := windows.GetDiskFreeSpaceEx(path, &bytes, nil, nil); err != nil {
		return 0, 0, err
	}
	return bytes, 1 << 32, nil
}
