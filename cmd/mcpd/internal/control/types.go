package control

import (
	"fmt"
	"time"

	"mcpd/bridge/ledger"
	"mcpd/security"
)

// Prefix begins every path of the control interface.
const Prefix = "/api/v1/"

// Status is what the daemon says about itself and its servers.
type Status struct {
	Version       string    `json:"version"`
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Listen        []string  `json:"listen"` // every address, HOST:PORT
	ConfigPath    string    `json:"config_path"`
	StateDir      string    `json:"state_dir"`
	// LastReload is nil until the file was read for a second time.
	LastReload *Reload `json:"last_reload,omitempty"`
	// RestartNeeded lists config keys whose new value waits for a restart of
	// the daemon.
	RestartNeeded []string `json:"restart_needed,omitempty"`
	// EnvironmentError says why the environment of the login shell is missing.
	EnvironmentError string `json:"environment_error,omitempty"`
	// Refused counts requests that the gate turned away, by reason.
	Refused security.RefusalCounts `json:"refused"`
	Ledger  Ledger                 `json:"ledger"`
	Servers []Server               `json:"servers"` // by name
}

// Ledger is what is remembered of calls with an idempotency key.
type Ledger struct {
	Entries  int   `json:"entries"`
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
	// Unknown counts the entries whose outcome the user has to settle, Running
	// the calls under way.
	Unknown int `json:"unknown"`
	Running int `json:"running"`
	// Error says why calls with an idempotency key are refused.
	Error string `json:"error,omitempty"`
}

// LedgerEntry is one remembered call.
type LedgerEntry = ledger.Record

// LedgerResolve settles the unknown outcome of one call.
type LedgerResolve struct {
	ID string `json:"id"` // or the beginning of it
	// Done says that the call took effect; false that it did not, so that its
	// key may be used again. It has to be there.
	Done *bool `json:"done"`
}

// Reload is the outcome of one reading of the config file.
type Reload struct {
	At time.Time `json:"at"`
	OK bool      `json:"ok"`
	// Error holds every problem, one a line, as file:line:column: message.
	Error    string    `json:"error,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	// What the file changed; empty for a file that changes nothing.
	Added         []string `json:"added,omitempty"`
	Removed       []string `json:"removed,omitempty"`
	Replaced      []string `json:"replaced,omitempty"`
	Retuned       []string `json:"retuned,omitempty"`
	RestartNeeded []string `json:"restart_needed,omitempty"`
}

// Problem is one thing that is wrong with the config file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1; 0 where unknown
	Column  int    `json:"column"` // from 1; 0 where unknown
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// States of a server besides those of its child's life.
const (
	StateDisabled = "disabled" // in the config, and not wanted
	StateWaiting  = "waiting"  // for the environment of the login shell
)

// Server is what the daemon says about one configured server.
type Server struct {
	Name string `json:"name"`
	URL  string `json:"url"` // its MCP endpoint
	// State is disabled, waiting (for the login shell's environment), stopped,
	// starting, ready, backoff, failed or draining.
	State           string     `json:"state"`
	Since           *time.Time `json:"since,omitempty"` // when the state began
	PID             int        `json:"pid,omitempty"`
	Era             string     `json:"era,omitempty"` // modern or legacy, once known
	ProtocolVersion string     `json:"protocol_version,omitempty"`
	ServerName      string     `json:"server_name,omitempty"`    // as it calls itself
	ServerVersion   string     `json:"server_version,omitempty"` // as it says
	StartedAt       *time.Time `json:"started_at,omitempty"`     // the running process
	UptimeSeconds   float64    `json:"uptime_seconds,omitempty"`
	Restarts        uint64     `json:"restarts"`
	LastExit        *Exit      `json:"last_exit,omitempty"`
	LastError       string     `json:"last_error,omitempty"`
	StderrTail      []string   `json:"stderr_tail,omitempty"`
	// Installing is true while the first start of a command line takes long
	// enough for a launcher to be downloading it.
	Installing bool       `json:"installing,omitempty"`
	NextTry    *time.Time `json:"next_try,omitempty"`

	Requests              uint64 `json:"requests"`
	InFlight              int    `json:"in_flight"`
	Questions             int    `json:"questions"` // of them, whose clients owe the server an answer
	Listeners             int    `json:"listeners"`
	UpstreamSubscriptions int    `json:"upstream_subscriptions"`
	// LegacyURL is the endpoint with sessions for clients of older revisions,
	// where the server has one, LegacySessions how many are open there.
	LegacyURL      string `json:"legacy_url,omitempty"`
	LegacySessions int    `json:"legacy_sessions"`
	Errors         uint64 `json:"errors"`
	// Repeats counts what mcpd itself sent again because a process died,
	// RepeatsRefused what it did not because of max_repeats_per_minute.
	Repeats        uint64 `json:"repeats"`
	RepeatsRefused uint64 `json:"repeats_refused"`

	// ReloadError says why the newest config of this server is not the one
	// that runs.
	ReloadError string `json:"reload_error,omitempty"`
	// Reloading is true while a new config of this server is being put in place.
	Reloading bool `json:"reloading,omitempty"`
}

// Exit is how a child process ended.
type Exit struct {
	At     time.Time `json:"at"`
	Code   int       `json:"code"`             // -1 where a signal ended it or it never ran
	Signal string    `json:"signal,omitempty"` // its name
	Reason string    `json:"reason,omitempty"`
}

// Token is what may be shown of an access token: never the token.
type Token = security.TokenInfo

// NewToken asks for an access token.
type NewToken struct {
	Name    string   `json:"name"`
	Admin   bool     `json:"admin,omitempty"`
	Servers []string `json:"servers"` // null means every server, [] none
	// TTLSeconds is how long it is valid; 0 means until it is revoked.
	TTLSeconds int64 `json:"ttl_seconds,omitempty"`
}

// RevokeToken names the access token to end.
type RevokeToken struct {
	Token string `json:"token"` // its id or its name
}

// CreatedToken is the one answer that holds a token's plaintext.
type CreatedToken struct {
	Token
	Secret string `json:"secret"`
}

// Error is a failure that the caller is told about: the sentence is for the
// person, the cause stays in the daemon's log.
type Error struct {
	Status  int    `json:"-"` // HTTP status
	Message string `json:"error"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error without a hint.
func Errorf(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Place is file:line:column, the form that editors and terminals make a link of.
func (p Problem) Place() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }
