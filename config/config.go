package config

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// MaxFileBytes bounds the configuration file; a larger one is refused before it is parsed.
const MaxFileBytes = 1 << 20

// MaxReferenceBytes bounds the content that one ${file:…} reference may bring in.
const MaxReferenceBytes = 64 << 10

// Config is one valid configuration, with every default filled in and every reference expanded. It is never changed
// after [Load] made it, so it may be shared between goroutines.
//
// A Config prints itself without the expanded values, see [Config.String].
type Config struct {
	// Path is the absolute path of the file.
	Path     string
	Daemon   Daemon
	Security Security
	Ledger   Ledger
	// Servers holds every [servers.NAME] table by name, the disabled ones too.
	Servers map[string]Server
}

// Daemon is the [daemon] table.
type Daemon struct {
	// Listen is a loopback address; port 0 means that the system picks one.
	Listen   netip.AddrPort
	LogLevel slog.Level
	// DrainTimeout is how long calls in flight may take to end when the daemon stops.
	DrainTimeout time.Duration
	// LoginEnv says whether servers get the environment of the user's login shell (key login_shell_env).
	LoginEnv bool
}

// Security is the [security] table.
type Security struct {
	// AllowedOrigins are in the form that browsers send: lower case, without the scheme's default port.
	AllowedOrigins []string
	// AllowedHosts are lower case, with the port where one was given.
	AllowedHosts []string
	// MaxRequestBytes bounds the body of one HTTP request.
	MaxRequestBytes int64
}

// Ledger is the [ledger] table: what is remembered of calls with an idempotency key.
type Ledger struct {
	// Keep is how long a finished call is remembered.
	Keep time.Duration
	// MaxBytes bounds what is remembered.
	MaxBytes int64
}

// Server is one [servers.NAME] table with [defaults] merged in.
type Server struct {
	Name string

	// Command, Args, Env and Cwd are expanded. For a disabled server they hold the text of the file, because nothing is
	// looked up for a server that will not run.
	Command string
	Args    []string
	Env     map[string]string
	Cwd     string

	// Raw is the same text before expansion: the form that may be shown.
	Raw Raw

	// Disabled servers are checked like the others but neither started nor served.
	Disabled bool
	Start    StartMode
	// IdleStop stops a server that had nothing to do for so long; 0 is never.
	IdleStop time.Duration
	Replace  ReplaceMode
	Protocol Protocol

	// StartTimeout bounds one handshake, and how long a request waits for a server that is starting.
	StartTimeout time.Duration
	// FirstStartTimeout is the same for the first start of a command line, which may have to install something.
	FirstStartTimeout time.Duration
	// RequestTimeout is how long a request may go without an answer and without progress.
	RequestTimeout time.Duration
	// MaxRequestTime bounds a request in all, progress or not.
	MaxRequestTime time.Duration
	// Interactive says which questions of a legacy server reach clients.
	Interactive Interactive
	// QuestionTimeout is how long a client may take to answer them.
	QuestionTimeout time.Duration
	// DrainTimeout is how long calls in flight may take to end when the server is stopped or replaced.
	DrainTimeout time.Duration
	// StopTimeout is the length of each step of stopping: stdin closed, then a request to terminate, then a kill.
	StopTimeout time.Duration
	// ProbeInterval is the idle time after which the server is asked whether it is alive; 0 is never.
	ProbeInterval time.Duration

	// MaxMessageBytes bounds one line from the server.
	MaxMessageBytes int64
	// MaxInFlight bounds the requests at the server at one time, MaxInFlightPerPrincipal those of one caller.
	MaxInFlight             int
	MaxInFlightPerPrincipal int
	// MaxListeners bounds the open subscription streams.
	MaxListeners int
	// StreamBufferBytes bounds what waits for one slow reader of a stream.
	StreamBufferBytes int64

	// LegacySessions serves clients of older revisions at an endpoint with sessions too.
	LegacySessions bool
	// MaxLegacySessions bounds the sessions that are open at one time.
	MaxLegacySessions int
	// LegacySessionIdle ends a session that had no request for so long.
	LegacySessionIdle time.Duration

	// TrustAnnotations takes the readOnlyHint of the server's tools for the truth.
	TrustAnnotations bool
	// MaxRepeatsPerMinute bounds how often mcpd itself repeats what was lost with a process; 0 is never.
	MaxRepeatsPerMinute int
	// Tools holds the [servers.NAME.tools.TOOL] tables by the tool's name.
	Tools map[string]Tool

	// Backoff bounds the pause before a crashed server is started again (keys restart_backoff_min and
	// restart_backoff_max).
	Backoff Backoff
}

// Raw is the command line of a server as it stands in the file, [defaults] merged in, ${…} not expanded.
type Raw struct {
	Command string
	Args    []string
	Env     map[string]string
	Cwd     string
}

// Tool is what the file says of one tool of a server.
type Tool struct {
	// IdempotencyKey is the argument that carries the idempotency key, "" for none.
	IdempotencyKey string
	// InjectKey says that the argument is mcpd's own and the server does not know it ({ inject = true }).
	InjectKey bool
	// ReadOnly says that the tool changes nothing, so that a lost call may be repeated.
	ReadOnly bool
}

// InjectedKey is the name of the argument that { inject = true } adds to a tool.
const InjectedKey = "idempotency_key"

// Backoff is a range of pauses.
type Backoff struct{ Min, Max time.Duration }

// StartMode says when a server is started.
type StartMode string

const (
	// StartEager starts the server together with the daemon.
	StartEager StartMode = "eager"
	// StartLazy starts it when the first request comes.
	StartLazy StartMode = "lazy"
)

// ReplaceMode says in which order a changed server is exchanged.
type ReplaceMode string

const (
	// ReplaceMakeBeforeBreak starts the new process, and stops the old one when the new one works.
	ReplaceMakeBeforeBreak ReplaceMode = "make-before-break"
	// ReplaceStopFirst is for servers that cannot run twice.
	ReplaceStopFirst ReplaceMode = "stop-first"
)

// Interactive says which questions of a legacy server reach clients.
type Interactive string

const (
	// InteractiveAuto passes on what is certain to belong to one request.
	InteractiveAuto Interactive = "auto"
	// InteractiveSerialize makes it certain: one request at a time.
	InteractiveSerialize Interactive = "serialize"
	// InteractiveOff tells the server that clients cannot be asked.
	InteractiveOff Interactive = "off"
)

// Protocol says which generation of the protocol the server speaks.
type Protocol string

const (
	// ProtocolAuto asks the server.
	ProtocolAuto Protocol = "auto"
	// ProtocolModern and ProtocolLegacy skip the question.
	ProtocolModern Protocol = "modern"
	ProtocolLegacy Protocol = "legacy"
)

// Environment is everything outside the file that its meaning depends on.
type Environment struct {
	// Getenv looks up an environment variable; nil means that none is set.
	Getenv func(name string) (value string, ok bool)
	// Home is the user's home folder, empty where it is not known.
	Home string
	// ReadFile reads the file of a ${file:…} reference. It may return an error for more than [MaxReferenceBytes];
	// nil means that no file can be read.
	ReadFile func(path string) ([]byte, error)
	// OS is the operating system whose rules for paths and variable names hold, in Go's spelling; empty means this one.
	OS string
}

// OSEnvironment is the environment of this process.
func OSEnvironment() Environment {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // ${home} then says that it is not known
	}
	return Environment{
		Getenv:   os.LookupEnv,
		Home:     home,
		ReadFile: func(path string) ([]byte, error) { return readRegular(path, MaxReferenceBytes) },
		OS:       runtime.GOOS,
	}
}

func (e Environment) lookup(name string) (string, bool) {
	if e.Getenv == nil {
		return "", false
	}
	return e.Getenv(name)
}

// variable is lookup for settings, where an empty variable counts as none.
func (e Environment) variable(name string) string {
	value, _ := e.lookup(name)
	return value
}

func (e Environment) os() string {
	if e.OS == "" {
		return runtime.GOOS
	}
	return e.OS
}

// Load reads the file and checks it. The error is [Errors] when the content is bad, and wraps the cause (fs.ErrNotExist,
// for example) when the file cannot be read.
func Load(path string, env Environment) (*Config, error) {
	data, err := readRegular(path, MaxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return Parse(path, data, env)
}

// Parse checks data as if it had been read from path, which decides what relative ${file:…} references and
// ${config_dir} mean. The error is [Errors] unless path cannot be made absolute.
func Parse(path string, data []byte, env Environment) (*Config, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot make the configuration's path absolute: %w", err)
	}
	doc, problems := parseDocument(absolute, data)
	if doc == nil {
		return nil, problems.sorted()
	}
	c := newChecker(doc, env, filepath.Dir(absolute))
	c.problems = problems
	cfg := c.config()
	if len(c.problems) > 0 {
		return nil, c.problems.sorted()
	}
	cfg.Path = absolute
	return cfg, nil
}

// readRegular reads at most limit bytes of a regular file. Anything else (a FIFO, a device, a folder) is refused, since
// reading it could block for ever or never end.
func readRegular(path string, limit int64) (data []byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}()
	data, err = io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &os.PathError{Op: "read", Path: path, Err: tooLargeError(limit)}
	}
	return data, nil
}
