package main

import (
	"io"
	"os"
)

// Colours, as SGR parameters.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	faint  = "2"
)

// painter returns a function that colours text where w is a terminal that the
// person wants coloured.
func painter(w io.Writer) func(colour, text string) string {
	if !coloured(w) {
		return func(_, text string) string { return text }
	}
	return func(colour, text string) string {
		if colour == "" {
			return text
		}
		return "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
}

func coloured(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminalFile(f)
}
