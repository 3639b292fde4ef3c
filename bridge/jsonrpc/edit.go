package jsonrpc

import (
	"bytes"
	"cmp"
	"slices"
)

// Edit replaces the bytes of Span by New. An empty span inserts at its start,
// an empty New deletes.
type Edit struct {
	Span
	New []byte
}

// AppendEdited appends src to dst with the edits applied; src itself stays as
// it is. Edits may come in any order; those that insert at one place keep
// their order. An edit inside the span of another one is dropped, as what it
// would change is gone, and so is an edit outside src.
func AppendEdited(dst, src []byte, edits ...Edit) []byte {
	dst = slices.Grow(dst, editedLen(src, edits))
	return appendEdited(dst, src, edits)
}

// AppendLine is AppendEdited for one line on a pipe: CR and LF, which in JSON
// are only white space between tokens, become spaces, and an LF ends the line.
func AppendLine(dst, src []byte, edits ...Edit) []byte {
	dst = slices.Grow(dst, editedLen(src, edits)+1)
	from := len(dst)
	dst = appendEdited(dst, src, edits)
	blank(dst[from:], '\n')
	blank(dst[from:], '\r')
	return append(dst, '\n')
}

func appendEdited(dst, src []byte, edits []Edit) []byte {
	if !slices.IsSortedFunc(edits, inOrder) {
		edits = slices.Clone(edits)
		slices.SortStableFunc(edits, inOrder)
	}
	done := 0
	for _, e := range edits {
		if e.Start < done || e.End < e.Start || e.End > len(src) {
			continue
		}
		dst = append(dst, src[done:e.Start]...)
		dst = append(dst, e.New...)
		done = e.End
	}
	return append(dst, src[done:]...)
}

// inOrder sorts by start; at one place insertions come first, then the longest.
func inOrder(a, b Edit) int {
	if a.Start != b.Start {
		return cmp.Compare(a.Start, b.Start)
	}
	switch aInserts, bInserts := a.Len() <= 0, b.Len() <= 0; {
	case aInserts && bInserts:
		return 0
	case aInserts:
		return -1
	case bInserts:
		return 1
	default:
		return cmp.Compare(b.End, a.End)
	}
}

// editedLen is an upper bound of the edited length.
func editedLen(src []byte, edits []Edit) int {
	n := len(src)
	for _, e := range edits {
		n += len(e.New)
	}
	return n
}

func blank(b []byte, c byte) {
	for {
		i := bytes.IndexByte(b, c)
		if i < 0 {
			return
		}
		b[i] = ' '
		b = b[i+1:]
	}
}

// InsertMembers inserts raw, one or more members without braces as in
// `"k":1,"l":2`, as the first members of the object at span obj of data. For
// an object that loses members at the same time use EditMembers.
func InsertMembers(data []byte, obj Span, raw []byte) Edit {
	edits := EditMembers(data, obj, raw)
	if len(edits) == 0 {
		return Edit{Span: Span{obj.Start + 1, obj.Start + 1}}
	}
	return edits[0]
}

// RemoveMember gives the span to delete so that the object at span obj of
// data stays valid without m, one of its members. For more than one member of
// an object use RemoveMembers: the spans of neighbours may need to differ.
func RemoveMember(data []byte, obj Span, m Member) Span {
	return removal(data, obj, m, m)
}

// RemoveMembers gives the edits that remove any of the members of the object
// at span obj of data, in any order, up to all of them. Absent members are
// passed over.
func RemoveMembers(data []byte, obj Span, ms ...Member) []Edit {
	return EditMembers(data, obj, nil, ms...)
}

// EditMembers gives the edits that insert raw (see InsertMembers; nil for
// nothing) into the object at span obj of data and remove any of its members.
// It is right also when nothing of what was there remains.
func EditMembers(data []byte, obj Span, insert []byte, remove ...Member) []Edit {
	if obj.Len() < 2 || obj.End > len(data) {
		return nil
	}
	gone := make([]Member, 0, len(remove))
	for _, m := range remove {
		if m.Present() {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(gone, func(a, b Member) int { return cmp.Compare(a.Key.Start, b.Key.Start) })
	gone = slices.CompactFunc(gone, func(a, b Member) bool { return a.Key.Start == b.Key.Start })

	edits := make([]Edit, 0, len(gone)+1)
	empty := skipSpace(data, obj.Start+1) >= obj.End-1 // nothing is left
	for len(gone) > 0 {
		// Neighbours go in one piece: their commas belong together.
		run := 1
		for run < len(gone) && nextKey(data, gone[run-1]) == gone[run].Key.Start {
			run++
		}
		first, last := gone[0], gone[run-1]
		edits = append(edits, Edit{Span: removal(data, obj, first, last)})
		empty = empty || previousComma(data, obj, first) < 0 && nextKey(data, last) < 0
		gone = gone[run:]
	}
	if len(insert) > 0 {
		at := obj.Start + 1
		text := slices.Clip(insert)
		if !empty {
			text = append(text, ',')
		}
		edits = slices.Insert(edits, 0, Edit{Span: Span{at, at}, New: text})
	}
	return edits
}

// removal is the span of the neighbours first to last and of the comma that
// goes with them.
func removal(data []byte, obj Span, first, last Member) Span {
	if next := nextKey(data, last); next >= 0 {
		return Span{first.Key.Start, next}
	}
	if comma := previousComma(data, obj, first); comma >= 0 {
		return Span{comma, last.Value.End}
	}
	return Span{first.Key.Start, last.Value.End}
}

// nextKey is where the member behind m begins, -1 if m is the last one.
func nextKey(data []byte, m Member) int {
	i := skipSpace(data, m.Value.End)
	if i >= len(data) || data[i] != ',' {
		return -1
	}
	return skipSpace(data, i+1)
}

// previousComma is where the comma in front of m is, -1 if m is the first one.
func previousComma(data []byte, obj Span, m Member) int {
	i := m.Key.Start - 1
	for i > obj.Start && isSpace(data[i]) {
		i--
	}
	if i <= obj.Start || data[i] != ',' {
		return -1
	}
	return i
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
