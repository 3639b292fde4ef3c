package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// content is a file of a Linux package, as nfpm wants it.
type content struct {
	Src      string   `json:"src,omitempty"`
	Dst      string   `json:"dst"`
	Type     string   `json:"type,omitempty"`
	FileInfo fileInfo `json:"file_info"`
}

type fileInfo struct {
	Mode  int       `json:"mode"`
	MTime time.Time `json:"mtime"`
}

// linuxPackage makes a deb or an rpm. nfpm reads YAML, of which JSON is a part.
func (b *build) linuxPackage(ctx context.Context, t target, kind string) error {
	b.say("%s for %s", kind, t)
	contents, err := b.linuxContents(t, kind)
	if err != nil {
		return err
	}
	scripts := filepath.Join(b.root, "packaging", "linux")
	config := map[string]any{
		"name": "mcpd", "arch": t.arch, "platform": "linux", "version": b.version, "version_schema": "semver",
		"release": "1", "section": "net", "priority": "optional", "license": "Apache-2.0", "mtime": b.epoch,
		"maintainer": b.publisher.maintainer(), "vendor": b.publisher.vendor, "homepage": b.publisher.homepage,
		"description": summary + "\n" +
			"mcpd starts the stdio MCP servers that a TOML file names, keeps them alive, and\n" +
			"offers each one over HTTP on the loopback interface to those that have its token.\n" +
			"Each user starts it with: mcpd service install",
		"contents": contents,
		"scripts": map[string]string{
			"postinstall": filepath.Join(scripts, "postinstall.sh"),
			"preremove":   filepath.Join(scripts, "preremove.sh"),
			"postremove":  filepath.Join(scripts, "postremove.sh"),
		},
		"deb": map[string]any{"compression": "xz"},
		"rpm": map[string]any{"buildhost": "localhost", "group": "System Environment/Daemons", "compression": "xz"},
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(b.work, fmt.Sprintf("nfpm-%s-%s.yaml", kind, t.arch))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	_, err = b.command(ctx, b.work, nil, filepath.Join(b.tools, "nfpm"), "package", "--config", file, "--packager", kind, "--target", b.out+"/")
	return err
}

func (b *build) linuxContents(t target, kind string) ([]content, error) {
	zsh, fish := "/usr/share/zsh/vendor-completions/_mcpd", "/usr/share/fish/vendor_completions.d/mcpd.fish"
	if kind == "rpm" {
		zsh = "/usr/share/zsh/site-functions/_mcpd"
	}
	share := func(name string) string { return filepath.Join(b.share(), filepath.FromSlash(name)) }
	files := map[string]string{
		"/usr/share/bash-completion/completions/mcpd": share("completions/mcpd.bash"),
		zsh:                                  share("completions/_mcpd"),
		fish:                                 share("completions/mcpd.fish"),
		"/usr/lib/systemd/user/mcpd.service": share("systemd/mcpd.service"),
		"/usr/share/doc/mcpd/README.md":      filepath.Join(b.root, "README.md"),
		"/usr/share/doc/mcpd/CHANGELOG.md":   filepath.Join(b.root, "CHANGELOG.md"),
		"/usr/share/doc/mcpd/copyright":      filepath.Join(b.root, "LICENSE"),
	}
	docs, err := filepath.Glob(filepath.Join(b.root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		files["/usr/share/doc/mcpd/docs/"+filepath.Base(d)] = d
	}
	pages, err := filepath.Glob(share("man/*.1"))
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		zipped := p + ".gz"
		if err := gzipFile(p, zipped); err != nil {
			return nil, err
		}
		files["/usr/share/man/man1/"+filepath.Base(zipped)] = zipped
	}
	list := []content{{Src: b.binary(t), Dst: "/usr/bin/mcpd", FileInfo: fileInfo{0o755, b.epoch}}}
	for dst, src := range files {
		c := content{Src: src, Dst: dst, FileInfo: fileInfo{0o644, b.epoch}}
		if kind == "rpm" && strings.HasPrefix(dst, "/usr/share/doc/") {
			c.Type = "doc"
		}
		list = append(list, c)
	}
	if kind == "rpm" { // which removes the folders that it is told are its own
		for _, dir := range []string{"/usr/share/doc/mcpd", "/usr/share/doc/mcpd/docs"} {
			list = append(list, content{Dst: dir, Type: "dir", FileInfo: fileInfo{0o755, b.epoch}})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Dst < list[j].Dst })
	return list, nil
}

func gzipFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, buf.Bytes(), 0o600)
}
