package jsonrpc

import "slices"

// Pieces is AppendLine for a long src that should not be copied: the line is
// the returned pieces, one after the other. Those parts of src that are longer
// than whole stay where they are, and the others are appended to dst, from
// which their pieces are taken; the first bytes of a long part, as many as
// whole, are appended as well, so that the first piece is worth a write of its
// own. The pieces are valid as long as src and the returned dst are.
//
// src itself must be free of CR and LF (see Blank).
func Pieces(dst []byte, pieces [][]byte, src []byte, whole int, edits ...Edit) (line []byte, all [][]byte) {
	if !slices.IsSortedFunc(edits, inOrder) {
		edits = slices.Clone(edits)
		slices.SortStableFunc(edits, inOrder)
	}
	// dst may move while it grows, so its own pieces are cut only at the end.
	type long struct {
		Span
		at int // where in dst it comes in
	}
	var longs []long
	from, done := len(dst), 0
	part := func(s Span) {
		if s.Len() > 2*whole {
			dst = append(dst, src[s.Start:s.Start+whole]...)
			s.Start += whole
			longs = append(longs, long{s, len(dst)})
			return
		}
		dst = append(dst, src[s.Start:s.End]...)
	}
	for _, e := range edits {
		if e.Start < done || e.End < e.Start || e.End > len(src) {
			continue
		}
		part(Span{done, e.Start})
		dst = append(dst, e.New...)
		done = e.End
	}
	part(Span{done, len(src)})
	Blank(dst[from:])
	dst = append(dst, '\n')
	for _, l := range longs {
		if l.at > from {
			pieces = append(pieces, dst[from:l.at])
		}
		pieces = append(pieces, l.Of(src))
		from = l.at
	}
	return dst, append(pieces, dst[from:])
}

// Blank makes spaces of CR and LF, which in JSON are only white space between
// tokens.
func Blank(b []byte) {
	blank(b, '\n')
	blank(b, '\r')
}
