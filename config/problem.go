package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

var errNotRegular = errors.New("not a regular file")

type tooLargeError int64

func (e tooLargeError) Error() string { return "larger than " + formatSize(int64(e)) }

// Problem is one thing that is wrong in the file.
type Problem struct {
	File string
	// Line and Column count from 1; Column counts characters (Unicode code points), not bytes. A byte order mark is not
	// counted.
	Line, Column int
	Message      string
	// Hint says how to mend it, for example `did you mean "command"?`. It may be empty.
	Hint string
}

// Error is "file:line:column: message (hint)", the form that editors and terminals make a link of.
func (p Problem) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Errors is every problem of a file, sorted by place. It is never empty when it is returned as an error.
type Errors []Problem

// Error has one line for each problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the problems one by one to errors.As.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, p := range e {
		list[i] = p
	}
	return list
}

func (e Errors) sorted() Errors {
	slices.SortFunc(e, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Hint, b.Hint),
		)
	})
	return slices.Compact(e)
}

// flaw is what a parser of single values returns: a problem that does not know its place yet.
type flaw struct{ message, hint string }

func flawf(format string, args ...any) *flaw { return &flaw{message: fmt.Sprintf(format, args...)} }

func (f *flaw) withHint(format string, args ...any) *flaw {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

// didYouMean is the hint that names the candidate nearest to got, or "" when none is near.
func didYouMean(got string, candidates []string) string {
	nearest := Nearest(got, candidates)
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", nearest)
}

// foldName makes the spellings requestTimeout, request-timeout and Request_Timeout equal.
func foldName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours. Long strings are not compared:
// they are no misspelling of anything, and the cost grows with the product of the lengths.
func editDistance(a, b string) int {
	s, t := []rune(a), []rune(b)
	const longest = 64
	if len(s) > longest || len(t) > longest {
		return max(len(s), len(t))
	}
	var before []int
	previous := make([]int, len(t)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(s); i++ {
		current := make([]int, len(t)+1)
		current[0] = i
		for j := 1; j <= len(t); j++ {
			substitution := previous[j-1]
			if s[i-1] != t[j-1] {
				substitution++
			}
			current[j] = min(previous[j]+1, current[j-1]+1, substitution)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous = previous, current
	}
	return previous[len(t)]
}

// Nearest is the candidate that was probably meant by got, or "" where none is near.
func Nearest(got string, candidates []string) string {
	best, bestDistance := "", -1
	plain := foldName(got)
	for _, candidate := range candidates {
		other := foldName(candidate)
		distance := editDistance(plain, other)
		shorter := min(len(plain), len(other))
		// One change makes any name of one letter any other.
		if distance > max(1, shorter/3) || distance >= shorter {
			continue
		}
		if bestDistance < 0 || distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	return best
}
