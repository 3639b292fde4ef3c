package service

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/DeRuina/timberjack"
)

// The daemon's own log, where no service manager keeps one.
const (
	logMegabytes = 10
	logBackups   = 3
)

// OpenLog opens a log file that is rotated, private to the user.
func OpenLog(path string) (io.WriteCloser, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the log: %w", err)
	}
	// Found out now rather than at the first line, which nobody would see.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the user says where
	if err != nil {
		return nil, fmt.Errorf("cannot write the log: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("cannot write the log: %w", err)
	}
	return &timberjack.Logger{
		Filename: path, MaxSize: logMegabytes, MaxBackups: logBackups, FileMode: 0o600, BackupTimeFormat: "20060102-150405.000",
	}, nil
}
