package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"mcpd/bridge"
	"mcpd/security"
)

// maxMemories bounds the file: command lines that were used longest ago are
// forgotten first.
const maxMemories = 500

// memory remembers across restarts of the daemon what command lines turned out
// to be. The keys are digests, because arguments may be private. It implements
// bridge.EraMemory and supervisor.StartMemory for all servers at once.
type memory struct {
	path   string
	logger *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	entries map[string]memoryEntry
	broken  bool // saving failed, and was warned about
}

type memoryEntry struct {
	Era     bridge.Era `json:"era,omitempty"`
	Started bool       `json:"started,omitempty"`
	At      time.Time  `json:"at"` // of the last change
}

type memoryFile struct {
	Commands map[string]memoryEntry `json:"commands"`
}

// openMemory reads what was remembered. What cannot be read is forgotten: all
// of it can be found out again.
func openMemory(path string, logger *slog.Logger) *memory {
	m := &memory{path: path, logger: logger, now: time.Now, entries: make(map[string]memoryEntry)}
	data, err := security.ReadPrivateFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m
	}
	var f memoryFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		logger.Warn("what was remembered of the servers' commands cannot be used and is found out again", "file", path, "error", err)
		return m
	}
	for key, e := range f.Commands {
		if e.Era != bridge.EraModern && e.Era != bridge.EraLegacy {
			e.Era = bridge.EraUnknown
		}
		m.entries[key] = e
	}
	return m
}

// change applies fn to an entry and saves where that changed it.
func (m *memory) change(key string, fn func(*memoryEntry)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.entries[key]
	after := before
	fn(&after)
	if after == before {
		return
	}
	after.At = m.now().UTC().Truncate(time.Second)
	m.entries[key] = after
	for len(m.entries) > maxMemories {
		oldest := ""
		for k, e := range m.entries {
			if oldest == "" || e.At.Before(m.entries[oldest].At) {
				oldest = k
			}
		}
		delete(m.entries, oldest)
	}
	data, err := json.Marshal(memoryFile{Commands: m.entries})
	if err != nil {
		err = fmt.Errorf("daemon: %w", err)
	} else {
		err = security.WritePrivateFile(m.path, append(data, '\n'))
	}
	if err != nil && !m.broken {
		m.logger.Warn("what is learned of the servers' commands cannot be saved", "file", m.path, "error", err)
	}
	m.broken = err != nil
}

// eras is the memory as the bridge sees it.
type eras struct{ *memory }

func (m eras) Era(key string) (bridge.Era, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	era := m.entries[key].Era
	return era, era != bridge.EraUnknown
}

func (m eras) Remember(key string, era bridge.Era) {
	m.change(key, func(e *memoryEntry) { e.Era = era })
}

func (m eras) Forget(key string) {
	m.change(key, func(e *memoryEntry) { e.Era = bridge.EraUnknown })
}

// starts is the memory as the supervisor sees it.
type starts struct{ *memory }

func (m starts) Started(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key].Started
}

func (m starts) Remember(key string) {
	m.change(key, func(e *memoryEntry) { e.Started = true })
}
