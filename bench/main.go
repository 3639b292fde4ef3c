// Command bench measures mcpd against the limit and against its peers, all in
// one run on this machine: absolute figures depend on the machine, the ratios
// are what to compare.
//
//	go run -C bench . -h
//
// The same program is the load driver, the echo server behind every bridge,
// the bare net/http server that is the limit, and the proxy made of the
// official Go SDK.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "echo-server":
			return echoServer(os.Stdin, os.Stdout)
		case "bare":
			return bareServer(ctx, os.Stdout)
		case "sdk-proxy":
			return sdkProxy(ctx, os.Stdout)
		}
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var (
		rounds   = flags.Int("rounds", 5, "rounds; targets take turns in each, the median counts")
		duration = flags.Duration("duration", time.Second, "time of one measurement")
		targets  = flags.String("targets", "bare,mcpd,sdk-proxy", "what to measure: bare, mcpd, sdk-proxy, mcp-proxy (npm)")
		conns    = flags.String("connections", "1,16,64", "connections at a time")
		sizes    = flags.String("sizes", "200,65536,1048576", "bytes of the echoed text")
		mcpd     = flags.String("mcpd", "", "an mcpd binary (default: built from this repository)")
		jsonOut  = flags.String("json", "", "also write the result as JSON to this file")
	)
	if err := flags.Parse(args); err != nil {
		return nil
	}
	connections, err := numbers(*conns)
	if err != nil {
		return err
	}
	payloads, err := numbers(*sizes)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mcpd-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var running []*target
	defer func() {
		for _, t := range running {
			t.stop()
		}
	}()
	for _, name := range strings.Split(*targets, ",") {
		t, err := start(ctx, strings.TrimSpace(name), dir, *mcpd)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		running = append(running, t)
	}
	report := report{Rounds: *rounds, Duration: duration.String()}
	for _, size := range payloads {
		for _, n := range connections {
			row, err := measure(ctx, running, workload{connections: n, size: size, duration: *duration, rounds: *rounds})
			if err != nil {
				return err
			}
			report.Cases = append(report.Cases, row)
			row.print(os.Stdout)
		}
	}
	for _, t := range running {
		report.Memory = append(report.Memory, memory{Target: t.name, LoadedKiB: t.rss()})
		fmt.Printf("%-10s RSS after load %6d KiB\n", t.name, t.rss())
	}
	if *jsonOut == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*jsonOut, append(text, '\n'), 0o644)
}

func numbers(list string) ([]int, error) {
	var out []int
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a list of positive numbers", list)
		}
		out = append(out, n)
	}
	return out, nil
}
