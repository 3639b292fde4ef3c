package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is a file in an archive.
type entry struct {
	name string // in the archive, with slashes
	path string // on disk
	mode fs.FileMode
}

// archiveName is the file that archive makes.
func (b *build) archiveName(t target) string {
	ext := "tar.gz"
	if t.os == "windows" {
		ext = "zip"
	}
	return fmt.Sprintf("mcpd_%s_%s_%s.%s", b.version, t.os, t.arch, ext)
}

// archive makes an archive of the program and what belongs to it, for those
// who install it by hand, and for Homebrew and Scoop.
func (b *build) archive(t target) error {
	b.say("archive for %s", t)
	entries, err := b.entries(t)
	if err != nil {
		return err
	}
	path := filepath.Join(b.out, b.archiveName(t))
	f, err := os.Create(path) //nolint:gosec // our own
	if err != nil {
		return err
	}
	if t.os == "windows" {
		err = b.writeZip(f, entries)
	} else {
		err = b.writeTar(f, entries)
	}
	return errors.Join(err, f.Close())
}

func (b *build) entries(t target) ([]entry, error) {
	list := []entry{{filepath.Base(b.binary(t)), b.binary(t), 0o755}}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		list = append(list, entry{name, filepath.Join(b.root, name), 0o644})
	}
	dirs := []string{"completions", "man"}
	switch t.os {
	case "linux":
		dirs = append(dirs, "systemd")
	case "windows":
		dirs = []string{"completions"}
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(b.share(), dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			rel, err := filepath.Rel(b.share(), path)
			if t.os == "windows" && !strings.HasSuffix(path, ".ps1") {
				return err
			}
			list = append(list, entry{filepath.ToSlash(rel), path, 0o644})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	top := strings.TrimSuffix(strings.TrimSuffix(b.archiveName(t), ".zip"), ".tar.gz")
	for i := range list {
		list[i].name = top + "/" + list[i].name
	}
	return list, nil
}

func (b *build) writeTar(w io.Writer, entries []entry) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	for _, e := range entries {
		data, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(data)), ModTime: b.epoch, Format: tar.FormatPAX}
		if err := tw.WriteHeader(header); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

func (b *build) writeZip(w io.Writer, entries []entry) error {
	zw := zip.NewWriter(w)
	for _, e := range entries {
		data, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: b.epoch}
		header.SetMode(e.mode)
		f, err := zw.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
	}
	return zw.Close()
}
