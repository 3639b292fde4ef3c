package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// isTerminalFile also has the console understand colours, which it does not
// by itself everywhere.
func isTerminalFile(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	if windows.GetConsoleMode(h, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
