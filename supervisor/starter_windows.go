package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// lookPath finds the file of a command with the PATH and PATHEXT of its own environment. Only absolute entries of PATH
// are searched, and never the current folder, which the system itself would put first.
func lookPath(c Command) (string, error) {
	if c.Name == "" {
		return "", &StartError{Permanent: true, Err: exec.ErrNotFound, Reason: "the command is empty"}
	}
	exts := pathExts(getenv(c.Env, "PATHEXT", strings.EqualFold))
	if strings.ContainsAny(c.Name, `:\/`) {
		path := c.Name
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return "", &StartError{Command: c.Name, Permanent: true, Err: err, Reason: fmt.Sprintf("%q is no path: %v", c.Name, err)}
		}
		if found := withExt(path, exts, isFile); found != "" {
			return found, nil
		}
		return "", &StartError{Command: c.Name, Permanent: true, Err: fs.ErrNotExist, Reason: fmt.Sprintf("%q does not exist", path)}
	}
	list := getenv(c.Env, "PATH", strings.EqualFold)
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found := withExt(filepath.Join(dir, c.Name), exts, isFile); found != "" {
			return found, nil
		}
	}
	return "", notFound(c, list)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

func explainStart(path string, err error) (reason string, permanent bool) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%q does not exist", path), true
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%q cannot be executed: access denied", path), true
	case errors.Is(err, windows.ERROR_BAD_EXE_FORMAT):
		return fmt.Sprintf("%q cannot be executed: it is no program for this system", path), true
	default:
		return fmt.Sprintf("%q cannot be executed: %v", path, causeOf(err)), false
	}
}

func newCommand(path string, c Command, _ *slog.Logger) (*exec.Cmd, *group, error) {
	cmd := &exec.Cmd{
		Path: path,
		Args: append([]string{c.Name}, c.Args...),
		Env:  slices.Clone(c.Env),
		Dir:  c.Dir,
		SysProcAttr: &syscall.SysProcAttr{
			HideWindow:    true,
			CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW,
		},
	}
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would be the daemon's own
	}
	if isBatch(path) {
		system, err := windows.GetSystemDirectory()
		if err != nil {
			return nil, nil, err
		}
		line, err := batchCommandLine(path, c.Args)
		if err != nil {
			return nil, nil, err
		}
		cmd.Path = filepath.Join(system, "cmd.exe")
		cmd.SysProcAttr.CmdLine = line
	}
	job, err := newJob()
	if err != nil {
		return nil, nil, err
	}
	return cmd, &group{job: job}, nil
}

// newJob makes a job object whose processes die with its last handle, so also with the daemon.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("making a job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, fmt.Errorf("setting up a job object: %w", err)
	}
	return job, nil
}

// group is the job of a child.
type group struct {
	mu  sync.Mutex
	job windows.Handle // 0 when released
}

// adopt puts the suspended process into the job and lets it run. Nothing that it starts can be outside.
func (g *group) adopt(cmd *exec.Cmd) error {
	pid := uint32(cmd.Process.Pid)
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return fmt.Errorf("opening the process: %w", err)
	}
	defer func() { _ = windows.CloseHandle(h) }()
	if err := windows.AssignProcessToJobObject(g.job, h); err != nil {
		return fmt.Errorf("putting the process into its job: %w", err)
	}
	return resume(pid)
}

// resume starts the one thread of a process that was made suspended. os/exec does not keep its handle.
func resume(pid uint32) error {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("listing threads: %w", err)
	}
	defer func() { _ = windows.CloseHandle(snap) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	resumed := false
	for err = windows.Thread32First(snap, &entry); err == nil; err = windows.Thread32Next(snap, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return fmt.Errorf("opening the thread of the process: %w", err)
		}
		_, err = windows.ResumeThread(thread)
		_ = windows.CloseHandle(thread)
		if err != nil {
			return fmt.Errorf("resuming the process: %w", err)
		}
		resumed = true
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return fmt.Errorf("listing threads: %w", err)
	}
	if !resumed {
		return errors.New("the process has no thread to resume")
	}
	return nil
}

func (g *group) kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job == 0 {
		return nil
	}
	return windows.TerminateJobObject(g.job, 1)
}

func (g *group) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != 0 {
		_ = windows.CloseHandle(g.job)
		g.job = 0
	}
}

// osProcess is a real process.
type osProcess struct {
	pipes
	cmd   *exec.Cmd
	group *group
}

func (p *osProcess) PID() int { return p.cmd.Process.Pid }

// Terminate has no counterpart: a console signal reaches only processes that share a console with the sender.
func (p *osProcess) Terminate() error { return errors.ErrUnsupported }

func (p *osProcess) Kill() error { return p.group.kill() }

func (p *osProcess) Wait() Exit {
	_ = p.cmd.Wait()
	_ = p.group.kill()
	p.group.release()
	e := exitOf(p.cmd.ProcessState)
	e.At = time.Now()
	return e
}

func signalOf(*os.ProcessState) string { return "" }
