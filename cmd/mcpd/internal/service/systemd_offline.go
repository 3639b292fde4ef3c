package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// managerRuns says whether a systemd of this user runs, reachable or not.
func (s *systemd) managerRuns() bool {
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/run/user/" + strconv.Itoa(s.uid)} {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "systemd", "private")); err == nil {
			return true
		}
	}
	return false
}

// uninstallOffline removes what Install made of a user whose systemd does not
// run, and with it no service. Where there is nothing of the kind it fails with
// why, the reason for which systemd could not be asked.
func (s *systemd) uninstallOffline(why error) (Outcome, error) {
	var files []string
	for _, path := range []string{s.unitPath(), s.socketPath()} {
		c, err := snapshot(path)
		if err != nil {
			return Outcome{}, err
		}
		if strings.Contains(string(c.before), marker) {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return Outcome{}, why
	}
	// What enables a unit is a link of its name in a folder of another unit's.
	for _, name := range []string{unitFile, socketFile} {
		links, err := filepath.Glob(filepath.Join(s.dir, "*.wants", name))
		if err != nil {
			return Outcome{}, fmt.Errorf("cannot look for what enables the service: %w", err)
		}
		for _, link := range links {
			if fi, err := os.Lstat(link); err == nil && fi.Mode()&os.ModeSymlink != 0 {
				files = append(files, link)
			}
		}
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, remove(f))
	}
	return Outcome{
		Changed: true, Files: files, Notes: []string{"no systemd of this user runs; it will know when it starts"},
	}, errors.Join(errs...)
}
