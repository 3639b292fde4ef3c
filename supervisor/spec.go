package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// Spec says what to run and how to look after it. A zero duration takes the default that is named with the field,
// except where zero has a meaning of its own.
type Spec struct {
	// Name of the server, for messages.
	Name string
	// Command is a path, or a name that is looked up in the PATH of Env. It is never given to a shell.
	Command string
	Args    []string
	// Env is the complete environment, KEY=VALUE. The last of equal keys counts.
	Env []string
	// Dir is the working folder; empty is the daemon's own.
	Dir string
	// Lazy starts the child at the first Acquire and not with Run.
	Lazy bool
	// IdleStop stops a child that carried nothing for so long; 0 is never.
	IdleStop time.Duration
	// StartTimeout bounds one handshake, and the wait of one Acquire. Default 30 s.
	StartTimeout time.Duration
	// FirstStartTimeout takes the place of StartTimeout for a command line that never came up before. Default 120 s.
	FirstStartTimeout time.Duration
	// DrainTimeout is how long calls in flight may take to end before the child is stopped. Default 30 s.
	DrainTimeout time.Duration
	// StopTimeout is how long each step of a stop may take: stdin closed, SIGTERM, SIGKILL. Default 5 s.
	StopTimeout time.Duration
	// ProbeInterval is the time without traffic after which the child is probed; 0 is never. Less than 10 s counts
	// as 10 s.
	ProbeInterval time.Duration
	// BackoffMin and BackoffMax bound the pause before a restart. Defaults 200 ms and 30 s.
	BackoffMin, BackoffMax time.Duration
	// StopFirst makes Replace stop the old child before it starts the new one.
	StopFirst bool
}

// CommandKey identifies the command line (command, arguments, folder) without showing it: arguments may be private.
func (s Spec) CommandKey() string {
	h := sha256.New()
	for _, part := range slices.Concat([]string{s.Command, s.Dir}, s.Args) {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (s Spec) withDefaults() Spec {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&s.StartTimeout, 30*time.Second)
	def(&s.FirstStartTimeout, 120*time.Second)
	def(&s.DrainTimeout, 30*time.Second)
	def(&s.StopTimeout, 5*time.Second)
	def(&s.BackoffMin, 200*time.Millisecond)
	def(&s.BackoffMax, 30*time.Second)
	s.FirstStartTimeout = max(s.FirstStartTimeout, s.StartTimeout)
	s.BackoffMax = max(s.BackoffMax, s.BackoffMin)
	if s.ProbeInterval > 0 {
		s.ProbeInterval = max(s.ProbeInterval, minTick)
	}
	s.IdleStop = max(s.IdleStop, 0)
	s.Args, s.Env = slices.Clone(s.Args), slices.Clone(s.Env)
	return s
}

// retuned is s with the limits of o: what can change without a new process.
func (s Spec) retuned(o Spec) Spec {
	o.Name, o.Command, o.Args, o.Env, o.Dir = s.Name, s.Command, s.Args, s.Env, s.Dir
	return o
}

// StartMemory remembers which command lines have come up at least once, by Spec.CommandKey. The daemon keeps it in its
// state folder. The methods are called from many servers' goroutines and must not block for long.
type StartMemory interface {
	Started(commandKey string) bool
	Remember(commandKey string)
}
