package childlog

import "slices"

// ring keeps the last lines within a bound of lines and of bytes. Lines are numbered from 0.
type ring struct {
	maxLines, maxBytes int
	lines              []Line // the oldest first
	bytes              int
	total              uint64 // lines ever added
}

const lineOverhead = 64 // of one kept line, about

func (r *ring) add(line Line) {
	r.lines = append(r.lines, line)
	r.total++
	r.bytes += len(line.Text) + lineOverhead
	drop := 0
	for len(r.lines)-drop > 1 && (len(r.lines)-drop > r.maxLines || r.bytes > r.maxBytes) {
		r.bytes -= len(r.lines[drop].Text) + lineOverhead
		r.lines[drop] = Line{} // let go of the text while the array lives on
		drop++
	}
	// append moves the window to a fresh array now and then, so the array stays in proportion to the window.
	r.lines = r.lines[drop:]
}

// end is the number that the next line will have.
func (r *ring) end() uint64 { return r.total }

func (r *ring) tail(n int) []Line {
	if n < 0 || n > len(r.lines) {
		n = len(r.lines)
	}
	return slices.Clone(r.lines[len(r.lines)-n:])
}

// from gives the lines numbered next and later, and how many of them are gone already.
func (r *ring) from(next uint64) (lines []Line, lost uint64) {
	first := r.total - uint64(len(r.lines))
	if next < first {
		lost, next = first-next, first
	}
	return slices.Clone(r.lines[next-first:]), lost
}
