package jsonrpc

import "iter"

// Members goes through the members of the object at span obj of data, which
// must have been validated: the unescaped name, and where the member is. It
// yields nothing when there is no object. It is not meant for the hot path.
func Members(data []byte, obj Span) iter.Seq2[string, Member] {
	return func(yield func(string, Member) bool) {
		raw := obj.Of(data)
		if len(raw) == 0 || raw[0] != '{' {
			return
		}
		s := scanner{data: data[:obj.End]}
		i := s.space(obj.Start + 1)
		for s.at(i) == '"' {
			var m Member
			m.Key.Start = i
			if i = s.key(i); i < 0 {
				return
			}
			m.Key.End = s.keyEnd
			m.Value.Start = i
			if i = s.value(i); i < 0 {
				return
			}
			m.Value.End = i
			key, err := Unquote(data, m.Key)
			if err != nil || !yield(key, m) {
				return
			}
			if i = s.space(i); s.at(i) != ',' {
				return
			}
			i = s.space(i + 1)
		}
	}
}

// Lookup finds the member of the object at span obj of data that has the
// given name, the first one if the name repeats.
func Lookup(data []byte, obj Span, key string) Member {
	for k, m := range Members(data, obj) {
		if k == key {
			return m
		}
	}
	return Member{}
}

// Elements goes through the elements of the array at span arr of data, which
// must have been validated. It yields nothing when there is no array.
func Elements(data []byte, arr Span) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		raw := arr.Of(data)
		if len(raw) == 0 || raw[0] != '[' {
			return
		}
		s := scanner{data: data[:arr.End]}
		i := s.space(arr.Start + 1)
		if s.at(i) == ']' {
			return
		}
		for {
			start := i
			if i = s.value(i); i < 0 || !yield(Span{start, i}) {
				return
			}
			if i = s.space(i); s.at(i) != ',' {
				return
			}
			i = s.space(i + 1)
		}
	}
}
