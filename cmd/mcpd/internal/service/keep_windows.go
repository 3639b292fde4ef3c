package service

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// endTogether puts this process into a job that ends with it: the handle is
// never closed, so the system closes it, and kills what is in the job.
func endTogether() error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("cannot make a job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))) //nolint:gosec // the API wants it
	if err == nil {
		err = windows.AssignProcessToJobObject(job, windows.CurrentProcess())
	}
	if err != nil {
		return fmt.Errorf("cannot set up a job object: %w", err)
	}
	return nil
}

// interrupt asks a process of this console to end. Console programs get the
// event together, so this process has had it already when it stops.
func interrupt(p *os.Process) error { return p.Kill() }
