package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// fakeStarter starts children that live in this process, so that a fake clock can be used.
type fakeStarter struct {
	// script is what the n-th child (from 1) does; its return is the child's end.
	script func(c *fakeChild) Exit
	// fail makes the n-th start fail.
	fail func(n int) error

	mu       sync.Mutex
	started  []time.Time
	commands []string
	living   int
	most     int // children that lived at the same time
}

func (f *fakeStarter) Start(c Command) (Process, error) {
	f.mu.Lock()
	f.started = append(f.started, time.Now())
	f.commands = append(f.commands, c.Name)
	n := len(f.started)
	f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail(n); err != nil {
			return nil, err
		}
	}
	p := &fakeChild{n: n, command: c.Name, asked: make(chan struct{}), killed: make(chan struct{}), over: make(chan struct{})}
	p.inR, p.inW = io.Pipe()
	p.outR, p.outW = io.Pipe()
	p.errR, p.errW = io.Pipe()
	f.mu.Lock()
	f.living++
	f.most = max(f.most, f.living)
	f.mu.Unlock()
	go func() {
		p.exit = f.script(p)
		_ = p.inR.Close()
		if !p.held {
			_ = p.outW.Close()
			_ = p.errW.Close()
		}
		f.mu.Lock()
		f.living--
		f.mu.Unlock()
		close(p.over)
	}()
	return p, nil
}

func (f *fakeStarter) starts() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.started...)
}

func (f *fakeStarter) names() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.commands, " ")
}

type fakeChild struct {
	n             int
	command       string
	inR           *io.PipeReader
	inW           *io.PipeWriter
	outR          *io.PipeReader
	outW          *io.PipeWriter
	errR          *io.PipeReader
	errW          *io.PipeWriter
	asked, killed chan struct{}
	over          chan struct{}
	exit          Exit
	held          bool // a descendant holds stdout and stderr beyond the end
}

func (p *fakeChild) PID() int              { return 1000 + p.n }
func (p *fakeChild) Stdin() io.WriteCloser { return p.inW }
func (p *fakeChild) Stdout() io.ReadCloser { return p.outR }
func (p *fakeChild) Stderr() io.ReadCloser { return p.errR }
func (p *fakeChild) Wait() Exit            { <-p.over; return p.exit }

func (p *fakeChild) Terminate() error { return once(p.asked) }
func (p *fakeChild) Kill() error      { return once(p.killed) }

func once(c chan struct{}) error {
	if isClosed(c) {
		return errors.New("signalled twice")
	}
	close(c)
	return nil
}

func (p *fakeChild) say(line string) { fmt.Fprintln(p.errW, line) }

// echo greets and echoes until stdin ends or a signal comes.
func (p *fakeChild) echo() Exit {
	fmt.Fprintln(p.outW, "ready")
	return p.serve()
}

func (p *fakeChild) serve() Exit {
	end := make(chan Exit, 1)
	go func() {
		in := bufio.NewScanner(p.inR)
		for in.Scan() {
			_, text, _ := strings.Cut(in.Text(), " ")
			switch text {
			case "exit":
				end <- Exit{Code: 1}
				return
			case "mute":
				continue
			}
			fmt.Fprintln(p.outW, in.Text())
		}
		end <- Exit{Code: 0}
	}()
	select {
	case e := <-end:
		return e
	case <-p.asked:
	case <-p.killed:
	}
	_ = p.inR.Close()
	<-end
	return Exit{Code: -1, Signal: "terminated"}
}

// hang does nothing until it is killed.
func (p *fakeChild) hang() Exit {
	<-p.killed
	return Exit{Code: -1, Signal: "killed"}
}

// lives greets, lives for d and dies.
func (p *fakeChild) lives(d time.Duration) Exit {
	go func() { _, _ = io.Copy(io.Discard, p.inR) }()
	fmt.Fprintln(p.outW, "ready")
	select {
	case <-time.After(d):
		return Exit{Code: 1}
	case <-p.asked:
		return Exit{Code: -1, Signal: "terminated"}
	}
}
