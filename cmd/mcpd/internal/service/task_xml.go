package service

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf16"
)

// The Windows task, in the order that its schema demands.
type taskXML struct {
	XMLName  xml.Name `xml:"http://schemas.microsoft.com/windows/2004/02/mit/task Task"`
	Version  string   `xml:"version,attr"`
	Info     taskInfo `xml:"RegistrationInfo"`
	Triggers struct {
		Logon taskLogon `xml:"LogonTrigger"`
	} `xml:"Triggers"`
	Principals struct {
		Principal taskPrincipal `xml:"Principal"`
	} `xml:"Principals"`
	Settings taskSettings `xml:"Settings"`
	Actions  taskActions  `xml:"Actions"`
}

type taskInfo struct {
	Author      string `xml:"Author"`
	Description string `xml:"Description"`
	URI         string `xml:"URI"`
}

type taskLogon struct {
	Enabled bool   `xml:"Enabled"`
	UserID  string `xml:"UserId"`
}

type taskPrincipal struct {
	ID        string `xml:"id,attr"`
	UserID    string `xml:"UserId"`
	LogonType string `xml:"LogonType"`
	RunLevel  string `xml:"RunLevel"`
}

type taskSettings struct {
	MultipleInstancesPolicy    string      `xml:"MultipleInstancesPolicy"`
	DisallowStartIfOnBatteries bool        `xml:"DisallowStartIfOnBatteries"`
	StopIfGoingOnBatteries     bool        `xml:"StopIfGoingOnBatteries"`
	AllowHardTerminate         bool        `xml:"AllowHardTerminate"`
	StartWhenAvailable         bool        `xml:"StartWhenAvailable"`
	AllowStartOnDemand         bool        `xml:"AllowStartOnDemand"`
	Enabled                    bool        `xml:"Enabled"`
	Hidden                     bool        `xml:"Hidden"`
	RunOnlyIfIdle              bool        `xml:"RunOnlyIfIdle"`
	ExecutionTimeLimit         string      `xml:"ExecutionTimeLimit"`
	Priority                   int         `xml:"Priority"`
	RestartOnFailure           taskRestart `xml:"RestartOnFailure"`
}

type taskRestart struct {
	Interval string `xml:"Interval"`
	Count    int    `xml:"Count"`
}

type taskActions struct {
	Context string   `xml:"Context,attr"`
	Exec    taskExec `xml:"Exec"`
}

type taskExec struct {
	Command   string `xml:"Command"`
	Arguments string `xml:"Arguments"`
}

// renderTask renders the task that starts mcpd when user logs on, in UTF-8.
//
// conhost gives the daemon a console without a window, which its servers
// inherit: without one each of them would open a window of its own.
func renderTask(d Definition, user string) []byte {
	t := taskXML{Version: "1.2"} // known to every Windows since 7
	t.Info = taskInfo{Author: user, Description: description + ". " + marker + ".", URI: `\` + Name}
	t.Triggers.Logon = taskLogon{Enabled: true, UserID: user}
	t.Principals.Principal = taskPrincipal{ID: "user", UserID: user, LogonType: "InteractiveToken", RunLevel: "LeastPrivilege"}
	t.Settings = taskSettings{
		MultipleInstancesPolicy: "IgnoreNew",
		AllowHardTerminate:      true,
		StartWhenAvailable:      true,
		AllowStartOnDemand:      true,
		Enabled:                 true,
		ExecutionTimeLimit:      "PT0S", // none
		Priority:                5,      // normal, as 7, the default, is below
		RestartOnFailure:        taskRestart{Interval: "PT1M", Count: 10},
	}
	t.Actions.Context = "user"
	t.Actions.Exec = taskExec{
		Command: `%SystemRoot%\System32\conhost.exe`,
		Arguments: "--headless " + windowsArgs(d.Executable, "service", "run", "--restart",
			"--config", d.ConfigPath, "--state-dir", d.StateDir, "--log-file", windowsLogFile(d)),
	}
	var b bytes.Buffer
	b.WriteString(xml.Header)
	enc := xml.NewEncoder(&b)
	enc.Indent("", "  ")
	if err := enc.Encode(t); err != nil { // nothing in it can fail
		panic(fmt.Sprintf("service: %v", err))
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// windowsLogFile is LogFile with the separators of Windows, whatever system
// renders.
func windowsLogFile(d Definition) string {
	return strings.TrimRight(d.StateDir, `\`) + `\logs\mcpd.log`
}

// windowsArgs writes a command line that CommandLineToArgvW reads back.
func windowsArgs(args ...string) string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = windowsQuoted(a)
	}
	return strings.Join(out, " ")
}

func windowsQuoted(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\"") {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for i := range len(s) {
		switch s[i] {
		case '\\':
			slashes++
			continue
		case '"':
			b.WriteString(strings.Repeat(`\`, 2*slashes+1))
		default:
			b.WriteString(strings.Repeat(`\`, slashes))
		}
		slashes = 0
		b.WriteByte(s[i])
	}
	b.WriteString(strings.Repeat(`\`, 2*slashes))
	b.WriteByte('"')
	return b.String()
}

// utf16File is text as schtasks wants it: UTF-16 with a byte order mark.
func utf16File(text []byte) []byte {
	s := strings.Replace(string(text), `encoding="UTF-8"`, `encoding="UTF-16"`, 1)
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		out = binary.LittleEndian.AppendUint16(out, u)
	}
	return out
}
