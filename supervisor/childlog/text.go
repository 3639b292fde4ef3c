package childlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxLine is the length in bytes at which a line is cut.
const MaxLine = 16 << 10

// Sanitize makes a line safe for a terminal and for a file that is read line by line: escape sequences and control
// characters go, so do the invisible characters that reorder text; bytes that are no UTF-8 become U+FFFD; what is longer
// than MaxLine is cut, with a mark that says how much is missing.
func Sanitize(line []byte) string {
	cut := 0
	if len(line) > MaxLine {
		keep := MaxLine
		for keep > MaxLine-utf8.UTFMax && !utf8.RuneStart(line[keep]) {
			keep--
		}
		cut = len(line) - keep
		line = line[:keep]
	}
	return sanitize(line, cut)
}

func sanitize(line []byte, cut int) string {
	var b strings.Builder
	b.Grow(len(line))
	for len(line) > 0 {
		if n := escapeLen(line); n > 0 {
			line = line[n:]
			continue
		}
		r, n := utf8.DecodeRune(line)
		line = line[n:]
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case unicode.IsControl(r), isReordering(r):
		default:
			b.WriteRune(r)
		}
	}
	s := strings.TrimRight(b.String(), " ")
	if cut > 0 {
		s += fmt.Sprintf(" … [%d bytes cut]", cut)
	}
	return s
}

// isReordering finds the characters that change the direction of text, and the separators that some viewers show as
// line ends.
func isReordering(r rune) bool {
	return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}

// escapeLen is the length of the terminal escape sequence that b starts with; 0 when it starts with none. A sequence
// that is not finished within the line takes the rest of it, except a lone escape, which takes itself.
func escapeLen(b []byte) int {
	var intro byte
	var i int
	switch {
	case len(b) >= 2 && b[0] == 0x1b:
		intro, i = b[1], 2
	case len(b) >= 2 && b[0] == 0xc2 && b[1] >= 0x80 && b[1] <= 0x9f: // C1 in UTF-8
		intro, i = b[1]-0x40, 2
	case len(b) > 0 && b[0] == 0x1b:
		return 1
	default:
		return 0
	}
	switch {
	case intro == '[': // CSI: parameters, then one final byte
		for ; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
			if b[i] < 0x20 || b[i] > 0x7e {
				return i
			}
		}
		return len(b)
	case strings.IndexByte("]PX^_", intro) >= 0: // strings, up to BEL or ST
		for ; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\' || b[i] == 0xc2 && i+1 < len(b) && b[i+1] == 0x9c {
				return i + 2
			}
		}
		return len(b)
	case intro >= 0x20 && intro <= 0x2f: // intermediates, then one final byte
		for ; i < len(b); i++ {
			if b[i] >= 0x30 && b[i] <= 0x7e {
				return i + 1
			}
			if b[i] < 0x20 || b[i] > 0x2f {
				return i
			}
		}
		return len(b)
	case intro >= 0x30 && intro <= 0x7e, b[0] == 0xc2:
		return i
	default:
		return 1
	}
}

// Copy reads lines from r until its end and writes them to the log as lines of s. A carriage return ends a line as
// well, as progress bars use it; blank lines are skipped. However long a line is, at most MaxLine bytes of it are held.
// It returns nil at the end of r, also when r was closed. tap, unless nil, sees each line that is kept.
func (l *Log) Copy(s Stream, r io.Reader, tap func(text string)) error {
	var (
		line = make([]byte, 0, 256)
		cut  int
	)
	flush := func() {
		if len(line) > 0 || cut > 0 {
			if text := sanitize(line, cut); text != "" {
				l.add(Line{Time: time.Now(), Stream: s, Text: text})
				if tap != nil {
					tap(text)
				}
			}
		}
		line, cut = line[:0], 0
	}
	br := bufio.NewReaderSize(r, 32<<10)
	for {
		if _, err := br.Peek(1); err != nil {
			flush()
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
				return nil
			}
			return err
		}
		chunk, _ := br.Peek(br.Buffered())
		for _, c := range chunk {
			switch {
			case c == '\n' || c == '\r':
				flush()
			case len(line) < MaxLine:
				line = append(line, c)
			default:
				cut++
			}
		}
		if _, err := br.Discard(len(chunk)); err != nil {
			return err
		}
	}
}
