package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpd/cmd/mcpd/internal/importer"
	"mcpd/config"
	"mcpd/security"
)

// The names of the files in the state folder that are looked at.
const (
	plainToken = "token"
	tokenList  = "tokens.json"
)

func (d *doctor) checkConfig(context.Context) {
	const check = "config"
	c, err := config.Load(d.ConfigPath, d.Environment)
	problems, bad := errors.AsType[config.Errors](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.trouble(check, "there is no config file "+d.ConfigPath, nil, []string{
			"mcpd init writes an example", "mcpd add NAME -- COMMAND writes one with your server",
		})
	case bad:
		var details []string
		for _, p := range problems {
			details = append(details, p.Error())
		}
		n := "an error"
		if len(problems) > 1 {
			n = fmt.Sprintf("%d errors", len(problems))
		}
		d.trouble(check, d.ConfigPath+" has "+n+"; a running mcpd goes on with the config from before", details,
			[]string{"correct the file; mcpd config check looks at it again"})
	case err != nil:
		d.trouble(check, err.Error(), nil, []string{"see that you may read the file"})
	default:
		d.config = c
		off := 0
		for _, s := range c.Servers {
			if s.Disabled {
				off++
			}
		}
		text := fmt.Sprintf("%s: no errors, servers: %d", d.ConfigPath, len(c.Servers))
		if off > 0 {
			text += fmt.Sprintf(" (%d disabled)", off)
		}
		d.ok(check, text)
	}
}

// checkConfigFile sees whether others can change what mcpd runs, or read the
// secrets in the file.
func (d *doctor) checkConfigFile(context.Context) {
	const check = "config file"
	real, err := filepath.EvalSymlinks(d.ConfigPath)
	if err != nil {
		return // said already
	}
	var details, mend []string
	for _, path := range []string{real, filepath.Dir(real)} {
		what, fix := othersCanWrite(path)
		if what != "" {
			details, mend = append(details, what), append(mend, fix)
		}
	}
	if len(details) > 0 {
		d.trouble(check, "others can change which programs mcpd runs as you", details, mend)
		return
	}
	if secrets := d.secrets(); len(secrets) > 0 {
		if what, fix := othersCanRead(real); what != "" {
			d.trouble(check, "others can read the secrets in the config file", append([]string{what}, secrets...), []string{
				fix, "or keep secrets in files of their own, mode 600: ${file:PATH}",
			})
			return
		}
		d.note(check, fmt.Sprintf("only you can read it; secrets are written out in it: %s", strings.Join(secrets, ", ")),
			"better keep them in files of their own, mode 600, and write ${file:PATH}")
		return
	}
	d.ok(check, "others cannot change it, and no secrets are written out in it")
}

// secrets names what looks like a secret and is written out.
func (d *doctor) secrets() []string {
	var list []string
	for _, s := range d.servers(true) {
		for _, name := range slices.Sorted(maps.Keys(s.Raw.Env)) {
			if importer.LooksSecret(name, s.Raw.Env[name]) {
				list = append(list, s.Name+": "+name)
			}
		}
		for _, a := range importer.SecretArguments(s.Raw.Args) {
			list = append(list, fmt.Sprintf("%s: argument %d", s.Name, a.Index+1))
		}
	}
	return list
}

// servers are those of the config, by name.
func (d *doctor) servers(disabledToo bool) []config.Server {
	if d.config == nil {
		return nil
	}
	var list []config.Server
	for _, name := range slices.Sorted(maps.Keys(d.config.Servers)) {
		if s := d.config.Servers[name]; disabledToo || !s.Disabled {
			list = append(list, s)
		}
	}
	return list
}

// checkReferencedFiles looks at the files of ${file:…}: what is kept out of the
// config because it is secret should not be readable elsewhere.
func (d *doctor) checkReferencedFiles(context.Context) {
	const check = "secret files"
	read := map[string]bool{}
	env := d.Environment
	env.ReadFile = func(path string) ([]byte, error) {
		read[path] = true
		return []byte("x"), nil
	}
	if d.config == nil {
		return
	}
	if _, err := config.Load(d.ConfigPath, env); err != nil || len(read) == 0 {
		return
	}
	var details, mend []string
	for _, path := range slices.Sorted(maps.Keys(read)) {
		if what, fix := othersCanRead(path); what != "" {
			details, mend = append(details, what), append(mend, fix)
		}
	}
	if len(details) > 0 {
		d.trouble(check, "others can read files that the config refers to with ${file:…}", details, mend)
		return
	}
	d.ok(check, fmt.Sprintf("only you can read the files that the config refers to: %d", len(read)))
}

func (d *doctor) checkState(context.Context) {
	const check = "state folder"
	if _, err := os.Stat(d.StateDir); errors.Is(err, fs.ErrNotExist) {
		parent := existing(d.StateDir)
		if err := writable(parent); err != nil {
			d.trouble(check, fmt.Sprintf("%s cannot be made: %s cannot be written to", d.StateDir, parent), []string{cause(err)},
				[]string{"make it yourself: mkdir -m 700 -p " + d.StateDir, "or name another one: --state-dir DIR"})
			return
		}
		d.ok(check, d.StateDir+" will be made at the first start")
		return
	}
	// It exists, so this only looks.
	if err := security.MakePrivateDir(d.StateDir); err != nil {
		d.notPrivate(check, err)
		return
	}
	if err := writable(d.StateDir); err != nil {
		d.trouble(check, d.StateDir+" cannot be written to", []string{cause(err)}, []string{"see to whom it belongs, and whether the disk is full or mounted read-only"})
		return
	}
	d.ok(check, d.StateDir+" is yours alone")
	d.checkTokens()
}

func (d *doctor) checkTokens() {
	const check = "tokens"
	for _, name := range []string{plainToken, tokenList} {
		if _, err := security.ReadPrivateFile(filepath.Join(d.StateDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.notPrivate(check, err)
			return
		}
	}
	if _, err := os.Stat(filepath.Join(d.StateDir, tokenList)); errors.Is(err, fs.ErrNotExist) {
		d.ok(check, "they will be made at the first start")
		return
	}
	store, err := security.OpenTokenStore(d.StateDir, security.TokenStoreOptions{Logger: discard()})
	if err == nil {
		_, err = store.Show()
	}
	if err != nil {
		d.trouble(check, err.Error(), nil, []string{"mcpd token rotate makes a new default token; give it to your programs"})
		return
	}
	active := 0
	for _, t := range store.List() {
		if t.State == security.TokenActive {
			active++
		}
	}
	d.ok(check, fmt.Sprintf("only you can read them; valid ones: %d", active))
}

// notPrivate reports what others can get at.
func (d *doctor) notPrivate(check string, err error) {
	var open *security.NotPrivateError
	if errors.As(err, &open) {
		d.trouble(check, open.Path+" "+open.Problem, nil, []string{open.Fix})
		return
	}
	d.trouble(check, err.Error(), nil, nil)
}

// existing is the nearest folder above a path that exists.
func existing(path string) string {
	for {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return path
		}
		parent := filepath.Dir(path)
		if parent == path {
			return path
		}
		path = parent
	}
}

// writable tries it, because permissions are not all that decides.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".mcpd-doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func cause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

const (
	leastFree  = 50 << 20  // bytes: below, logs and tokens will soon fail
	lowFree    = 500 << 20 // bytes: below, there is a note
	leastFiles = 200
)

func (d *doctor) checkDisk(context.Context) {
	const check = "disk"
	dir := existing(d.StateDir)
	free, files, err := freeSpace(dir)
	switch {
	case err != nil:
		d.skip(check, "the free space of "+dir+" cannot be found out: "+cause(err))
	case free < leastFree:
		d.trouble(check, fmt.Sprintf("only %d MiB are free where mcpd keeps tokens and logs (%s)", free>>20, dir), nil,
			[]string{"make room there, or name another folder: --state-dir DIR"})
	case files < leastFiles:
		d.trouble(check, fmt.Sprintf("the file system of %s has room for %d more files only", dir, files), nil,
			[]string{"remove files there, or name another folder: --state-dir DIR"})
	case free < lowFree:
		d.note(check, fmt.Sprintf("%d MiB are free for tokens and logs (%s)", free>>20, dir))
	default:
		d.ok(check, fmt.Sprintf("%.1f GiB are free for tokens and logs", float64(free)/(1<<30)))
	}
}

// clockSlack is how far ahead of the clock a file may be: file servers have
// clocks of their own.
const clockSlack = 5 * time.Minute

// checkClock finds a clock that was set back: tokens would not expire when they
// should, and logs would be in the wrong order.
func (d *doctor) checkClock(context.Context) {
	const check = "clock"
	now := time.Now()
	if now.Year() < 2026 {
		d.trouble(check, "the clock says "+now.Format(time.DateOnly), nil, []string{"set it; tokens expire by it, and certificates are checked by it"})
		return
	}
	for _, name := range []string{tokenList, plainToken, "daemon.json", "commands.json"} {
		path := filepath.Join(d.StateDir, name)
		if info, err := os.Stat(path); err == nil && info.ModTime().Sub(now) > clockSlack {
			d.trouble(check, fmt.Sprintf("%s was written in the future, on %s: the clock was set back, or was wrong then", path, info.ModTime().Format(time.DateTime)), nil,
				[]string{"set the clock; if it is right now: touch " + path})
			return
		}
	}
	d.ok(check, now.Format(time.DateTime))
}
