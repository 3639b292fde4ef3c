package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// report is the whole run, as JSON.
type report struct {
	Rounds   int           `json:"rounds"`
	Duration string        `json:"duration"`
	Cases    []*caseReport `json:"cases"`
	Memory   []memory      `json:"memory"`
}

type memory struct {
	Target    string `json:"target"`
	LoadedKiB int    `json:"loaded_kib"`
}

// caseReport compares the targets in one case by the medians of their rounds.
type caseReport struct {
	Connections int            `json:"connections"`
	Bytes       int            `json:"bytes"`
	Targets     []targetReport `json:"targets"`
}

type targetReport struct {
	Name     string  `json:"name"`
	Rate     float64 `json:"calls_per_second"`
	MedianUs float64 `json:"median_us"`
	P99Us    float64 `json:"p99_us"`
	CPUMs    float64 `json:"cpu_ms_per_1000_calls"`
	// Of the first target, which is the limit.
	RateRatio float64 `json:"rate_ratio"`
	CPURatio  float64 `json:"cpu_ratio"`
}

func newCaseReport(targets []*target, samples [][]sample, w workload) *caseReport {
	c := &caseReport{Connections: w.connections, Bytes: w.size}
	for i, t := range targets {
		r := targetReport{
			Name:     t.name,
			Rate:     median(samples[i], func(s sample) float64 { return s.rate }),
			MedianUs: median(samples[i], func(s sample) float64 { return us(s.median) }),
			P99Us:    median(samples[i], func(s sample) float64 { return us(s.p99) }),
			CPUMs:    median(samples[i], func(s sample) float64 { return us(s.cpu) / 1000 }),
		}
		c.Targets = append(c.Targets, r)
		first := c.Targets[0]
		c.Targets[i].RateRatio = r.Rate / first.Rate
		c.Targets[i].CPURatio = r.CPUMs / first.CPUMs
	}
	return c
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func (c *caseReport) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d connections, %d bytes\n%-10s %10s %7s %10s %10s %12s %7s\n", c.Connections, c.Bytes,
		"", "calls/s", "ratio", "median µs", "p99 µs", "CPU ms/1000", "ratio")
	for _, t := range c.Targets {
		fmt.Fprintf(w, "%-10s %10.0f %7.2f %10.0f %10.0f %12.1f %7.2f\n",
			t.Name, t.Rate, t.RateRatio, t.MedianUs, t.P99Us, t.CPUMs, t.CPURatio)
	}
}
