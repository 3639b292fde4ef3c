package config

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks bounds how many symbolic links are followed, as systems do.
const maxLinks = 40

// foldersOf returns the folders whose entries decide which file an absolute path leads to: the one that holds the file,
// and for each symbolic link on the way, in any part of the path, the one that holds the link. Where something is
// missing on the way, it is the folder in which it would appear. The folders themselves are free of links.
func foldersOf(path string) map[string]struct{} {
	folders := make(map[string]struct{})
	volume := filepath.VolumeName(path)
	here := volume + string(filepath.Separator)
	parts := splitPath(path[len(volume):])
	links := 0
	for len(parts) > 0 {
		name := parts[0]
		parts = parts[1:]
		switch name {
		case ".":
			continue
		case "..":
			here = filepath.Dir(here)
			continue
		}
		next := filepath.Join(here, name)
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			folders[here] = struct{}{}
			return folders
		case info.Mode()&os.ModeSymlink != 0:
			folders[here] = struct{}{}
			target, err := os.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return folders
			}
			if filepath.IsAbs(target) {
				volume := filepath.VolumeName(target)
				here = volume + string(filepath.Separator)
				target = target[len(volume):]
			}
			parts = append(splitPath(target), parts...)
		case len(parts) == 0:
			folders[here] = struct{}{}
		default:
			here = next
		}
	}
	return folders
}

// splitPath takes a path apart. It keeps "..", which leads elsewhere behind a link than its text says.
func splitPath(path string) []string {
	return strings.FieldsFunc(filepath.ToSlash(path), func(r rune) bool { return r == '/' })
}
