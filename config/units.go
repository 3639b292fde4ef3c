package config

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits are in the order in which formatSize tries them.
func sizeUnits() []struct {
	name   string
	factor int64
} {
	return []struct {
		name   string
		factor int64
	}{
		{"GiB", 1 << 30},
		{"MiB", 1 << 20},
		{"KiB", 1 << 10},
		{"GB", 1e9},
		{"MB", 1e6},
		{"KB", 1e3},
		{"B", 1},
	}
}

// parseSize reads "16MiB". A unit is demanded, so that nobody has to guess what a bare number counts.
func parseSize(s string) (int64, *flaw) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	number, unit := s[:digits], s[digits:]
	if number == "" {
		return 0, flawf("%q is not a size", s).withHint(`sizes are written as "64KiB", "16MiB" or "1GB"`)
	}
	if unit == "" {
		return 0, flawf("the size %q has no unit", s).withHint("did you mean %q?", s+"B")
	}
	n, err := strconv.ParseInt(number, 10, 64)
	for _, u := range sizeUnits() {
		if u.name == unit {
			if err != nil || n > math.MaxInt64/u.factor {
				return 0, flawf("the size %q is too large to count", s)
			}
			return n * u.factor, nil
		}
	}
	bad := flawf("the size %q has an unknown unit", s).withHint("units are B, KB, MB, GB and KiB, MiB, GiB")
	for _, u := range sizeUnits() {
		if strings.EqualFold(u.name, strings.TrimSpace(unit)) || strings.EqualFold(u.name, strings.TrimSpace(unit)+"B") {
			return 0, bad.withHint("did you mean %q?", number+u.name)
		}
	}
	return 0, bad
}

// formatSize is the shortest exact text that parseSize reads back.
func formatSize(n int64) string {
	for _, u := range sizeUnits() {
		if n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func parseDuration(s string) (time.Duration, *flaw) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	bad := flawf("%q is not a duration", s).withHint(`durations are written as "200ms", "30s", "5m" or "1h30m"`)
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, flawf("the duration %q has no unit", s).withHint("did you mean %q?", s+"s")
	}
	if days, found := strings.CutSuffix(s, "d"); found {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return 0, flawf("the duration %q has a unit that does not exist", s).
				withHint("did you mean %q?", strconv.FormatUint(n*24, 10)+"h")
		}
	}
	return 0, bad
}

// formatDuration drops the zero parts that Duration.String adds: 5m, not 5m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
