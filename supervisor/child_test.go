package supervisor

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const childMode = "SUPERVISOR_TEST_MODE"

// childMain is what a child process of the tests does, by mode. Words of a mode are separated by spaces.
func childMain(mode string) {
	greeting := "ready"
	for word := range strings.FieldsSeq(mode) {
		name, arg, _ := strings.Cut(word, "=")
		switch name {
		case "echo", "lastword":
		case "exit": // before the greeting
			code, _ := strconv.Atoi(arg)
			fmt.Fprintln(os.Stderr, "cannot open the library")
			os.Exit(code)
		case "hang":
			select {}
		case "sleep": // a grandchild
			sleepForever()
		case "flood":
			n, _ := strconv.Atoi(arg)
			for i := range n {
				fmt.Fprintf(os.Stderr, "line %06d of much more than any pipe holds\n", i)
			}
		case "huge":
			n, _ := strconv.Atoi(arg)
			fmt.Fprintln(os.Stderr, strings.Repeat("x", n))
		case "say":
			fmt.Fprintln(os.Stderr, arg)
		case "junk":
			greeting += "\n\x1b[31mnot a message\x1b[0m"
		case "env":
			greeting += " " + os.Getenv(arg)
		case "cwd":
			dir, _ := os.Getwd()
			greeting += " " + dir
		case "args":
			greeting += fmt.Sprintf(" %q", os.Args[1:])
		case "stubborn":
			ignoreTerm()
		case "nice": // says when it is asked to end
			onTerm(func() { fmt.Fprintln(os.Stderr, "asked to end"); os.Exit(7) })
		case "grandchild", "stray", "daemon": // same group; own session; own session and orphaned
			greeting += fmt.Sprintf(" %d", spawn(name))
		case "middle": // of a daemon: start it, tell its pid by a file, and leave
			_ = os.WriteFile(arg, []byte(strconv.Itoa(spawn("stray"))), 0o600)
			os.Exit(0)
		case "lonely": // leave at once and let others live
			fmt.Println(greeting)
			os.Exit(3)
		default:
			fmt.Fprintln(os.Stderr, "unknown mode", word)
			os.Exit(99)
		}
	}
	fmt.Println(greeting)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		_, text, _ := strings.Cut(in.Text(), " ")
		switch name, arg, _ := strings.Cut(text, " "); name {
		case "exit":
			code, _ := strconv.Atoi(arg)
			os.Exit(code)
		case "mute": // never answered
			continue
		case "closeout":
			os.Stdout.Close()
			sleepForever()
		}
		fmt.Println(in.Text())
	}
	if strings.Contains(mode, "stubborn") || strings.Contains(mode, "nice") {
		fmt.Fprintln(os.Stderr, "stdin was closed")
		sleepForever()
	}
	if strings.Contains(mode, "lastword") {
		fmt.Fprintln(os.Stderr, "bye")
	}
}

func sleepForever() {
	for {
		time.Sleep(time.Hour)
	}
}

// spawn starts a grandchild that holds all pipes, and gives its pid.
func spawn(kind string) int {
	cmd := exec.Command(os.Args[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	mode := "sleep"
	switch kind {
	case "stray":
		setsid(cmd)
	case "daemon":
		file := filepath.Join(os.Getenv("GOCOVERDIR"), "pid")
		cmd.Env = append(os.Environ(), childMode+"=middle="+file)
		if err := cmd.Run(); err != nil {
			panic(err)
		}
		data, _ := os.ReadFile(file)
		pid, _ := strconv.Atoi(string(data))
		return pid
	}
	cmd.Env = append(os.Environ(), childMode+"="+mode)
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd.Process.Pid
}
