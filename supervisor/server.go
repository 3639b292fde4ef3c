package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const minTick = 10 * time.Second

// Options are what a Server is made of besides its Spec.
type Options[S Session] struct {
	// Dialer is required.
	Dialer Dialer[S]
	// Starter; nil starts real processes.
	Starter Starter
	// Logger; nil discards.
	Logger *slog.Logger
	// Log takes the child's stderr and junk; nil keeps a ring in memory only. Its owner closes it after Run returned.
	Log *Log
	// Rand gives numbers in [0,1) for the jitter; nil takes math/rand/v2.
	Rand func() float64
	// StartMemory; nil remembers only within this Server.
	StartMemory StartMemory
}

// Server is one configured name. Over its life it runs incarnations of a child.
type Server[S Session] struct{}

var errTODO = errors.New("not yet")

// New makes a Server. Nothing runs before Run.
func New[S Session](spec Spec, o Options[S]) *Server[S] { return &Server[S]{} }

// Run owns everything.
func (s *Server[S]) Run(ctx context.Context) error { return errTODO }

// Acquire demands the child.
func (s *Server[S]) Acquire(ctx context.Context) (S, error) { var z S; return z, errTODO }

// Replace changes what is run.
func (s *Server[S]) Replace(ctx context.Context, spec Spec) error { return errTODO }

// Retune changes limits.
func (s *Server[S]) Retune(spec Spec) {}

// Start starts a stopped or failed server.
func (s *Server[S]) Start(ctx context.Context) error { return errTODO }

// Stop stops the child and holds it stopped.
func (s *Server[S]) Stop(ctx context.Context) error { return errTODO }

// Restart stops and starts.
func (s *Server[S]) Restart(ctx context.Context) error { return errTODO }

// Status reads the published snapshot.
func (s *Server[S]) Status() Status { return Status{} }

// Log gives the server's log.
func (s *Server[S]) Log() *Log { return nil }
