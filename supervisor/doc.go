// Package supervisor keeps one child process alive for each configured server.
//
// It owns processes: starting them without a shell, their process group (POSIX) or job object (Windows), their pipes,
// their stderr, their death, the pause before the next start, the stop that leaves no descendant behind, and the
// replacement of one child by the next without a gap.
//
// It never looks into what is said over the pipes: a Dialer turns them into a Session, and the Session says how much it
// carries and when it ended.
package supervisor

import "mcpd/supervisor/childlog"

// Log is the log of one server's children.
type Log = childlog.Log
