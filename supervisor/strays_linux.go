package supervisor

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// awaitExit waits until pid has ended and leaves it to be reaped: as long as it is not, its number and that of its
// group stay taken.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

const (
	strayRounds = 10 // of looking for what was forked meanwhile
	strayWait   = 200 * time.Millisecond
)

// killStrays kills the descendants of a child that left its process group.
func killStrays(mark string, logger *slog.Logger) {
	killMarked(mark, logger, "a descendant of a child left its process group and was killed")
}

// KillOrphans kills the processes that carry mark, a NAME=VALUE entry, in their environment: what a daemon that was
// killed itself could not stop. The caller sees to it that no running daemon starts children with that mark. Only Linux
// shows the environment of other processes in a reliable way; Windows needs no such search, since a job object ends with
// its daemon; elsewhere nothing happens.
// The caller's own ancestors are spared: a shell that a child once started may start the next daemon.
func KillOrphans(mark string, logger *slog.Logger) {
	killMarked(mark, logger, "a child of an earlier daemon was still there and was killed")
}

// ancestors are the processes that pid descends from.
func ancestors(pid int) map[int]bool {
	found := make(map[int]bool)
	for pid > 1 && !found[pid] {
		found[pid] = true
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			break
		}
		// The second field, the name, may hold anything but ends at the last parenthesis.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			break
		}
		if pid, err = strconv.Atoi(string(fields[1])); err != nil {
			break
		}
	}
	return found
}

// killMarked kills the processes that carry mark in their environment, and what they fork meanwhile.
func killMarked(mark string, logger *slog.Logger, message string) {
	for range strayRounds {
		strays := findStrays(mark)
		if len(strays) == 0 {
			return
		}
		for _, s := range strays {
			logger.Info(message, "pid", s.pid, "program", s.program)
			s.kill()
		}
		for _, s := range strays {
			s.wait()
		}
	}
	logger.Warn("processes that were to be killed keep starting others and could not all be killed")
}

// stray is a process, held by a descriptor so that its number cannot pass to another one before it is killed.
type stray struct {
	pid     int
	fd      int
	program string
}

func findStrays(mark string) []stray {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	spared := ancestors(os.Getpid())
	var out []stray
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid <= 1 || spared[pid] || !carries(pid, mark) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // ended meanwhile, or a kernel before 5.3
		}
		if !carries(pid, mark) { // the number changed hands before it was held
			_ = unix.Close(fd)
			continue
		}
		name, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "comm"))
		out = append(out, stray{pid, fd, strings.TrimSpace(string(name))})
	}
	return out
}

// carries says whether the environment of pid has the entry. Zombies and other users' processes show none.
func carries(pid int, entry string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

func (s stray) kill() { _ = unix.PidfdSendSignal(s.fd, unix.SIGKILL, nil, 0) }

// wait gives it a moment to be gone, so that the next look does not find it again.
func (s stray) wait() {
	defer func() { _ = unix.Close(s.fd) }()
	until := time.Now().Add(strayWait)
	for {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
