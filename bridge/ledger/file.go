package ledger

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The file has four buckets. Every entry is in calls; those that end by
// themselves are in expiry as well, and those whose answer is kept in answers.
//
//	calls    id          -> stored, JSON
//	answers  id          -> the answer
//	expiry   time, id    -> nothing
//	meta     "totals"    -> totals, JSON; "format" -> "1"
const (
	bucketCalls   = "calls"
	bucketAnswers = "answers"
	bucketExpiry  = "expiry"
	bucketMeta    = "meta"

	keyTotals = "totals"
	keyFormat = "format"
	format    = "1"
)

// overhead is what an entry counts for beyond its bytes: keys, page headers,
// pages that are not full.
const overhead = 256

// stored is a record as it is in the file.
type stored struct {
	Record
	Digest Digest `json:"digest"`
}

func (s *stored) expired(now time.Time) bool {
	return !s.Expires.IsZero() && !now.Before(s.Expires)
}

type totals struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Unknown int64 `json:"unknown"`
}

// file is the open file. One goroutine writes: what comes while it syncs goes
// out together with the next sync.
type file struct {
	path string
	db   *bbolt.DB
	wg   sync.WaitGroup

	mu     sync.Mutex
	queue  []*write
	closed bool
	wake   chan struct{} // holds one
}

type write struct {
	fn   func(*bbolt.Tx) error
	err  error
	done chan struct{}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lockTimeout is how long another process may hold the file before that counts.
const lockTimeout = 500 * time.Millisecond

// openFile opens the file or makes it, and settles what an earlier process left
// running.
func openFile(path string, now time.Time) (_ *file, interrupted int, err error) {
	fresh := !exists(path)
	f := &file{path: path, wake: make(chan struct{}, 1)}
	err = guarded(func() error {
		var err error
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = errors.New("another process holds it")
	}
	if err != nil {
		return nil, 0, unusable(path, err)
	}
	err = guarded(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			interrupted, err = recoverFile(tx, now)
			return err
		})
	})
	if err != nil {
		_ = guarded(f.db.Close)
		return nil, 0, unusable(path, err)
	}
	if fresh {
		// The file has to be found again after the machine lost its power. Some
		// systems cannot sync a folder.
		if dir, err := os.Open(filepath.Dir(path)); err == nil {
			_ = dir.Sync()
			_ = dir.Close()
		}
	}
	f.wg.Go(f.run)
	return f, interrupted, nil
}

// recoverFile makes the buckets, and the calls of an earlier process unknown.
// The totals are counted anew.
func recoverFile(tx *bbolt.Tx, now time.Time) (interrupted int, err error) {
	for _, name := range []string{bucketCalls, bucketAnswers, bucketExpiry, bucketMeta} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return 0, err
		}
	}
	meta := tx.Bucket([]byte(bucketMeta))
	switch v := meta.Get([]byte(keyFormat)); {
	case v == nil:
		if err := meta.Put([]byte(keyFormat), []byte(format)); err != nil {
			return 0, err
		}
	case string(v) != format:
		return 0, fmt.Errorf("its format %q is of another version of mcpd", v)
	}
	var t totals
	change := map[id]*stored{}
	err = tx.Bucket([]byte(bucketCalls)).ForEach(func(k, v []byte) error {
		s, err := decode(v)
		if err != nil {
			return err
		}
		t.add(s, 1)
		if s.State == Running {
			s.State, s.Ended, s.Why = Unknown, now, "mcpd ended before the answer came"
			change[id(k)] = s
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := putTotals(tx, t); err != nil {
		return 0, err
	}
	for key, s := range change {
		if err := replace(tx, key, s, nil); err != nil {
			return 0, err
		}
	}
	return len(change), nil
}

func (t *totals) add(s *stored, sign int64) {
	t.Entries += sign
	t.Bytes += sign * s.Bytes
	if s.State == Unknown {
		t.Unknown += sign
	}
}

// guarded runs what touches the file. bbolt panics over some damaged files, and
// reading a mapped file that became shorter is a fault: neither may end mcpd.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	return fn()
}

// close waits for what is being written.
func (f *file) close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.signal()
	f.wg.Wait()
	return guarded(f.db.Close)
}

func (f *file) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// update runs fn in a transaction that is synced when update returns. fn may
// run more than once.
func (f *file) update(fn func(*bbolt.Tx) error) error {
	w := &write{fn: fn, done: make(chan struct{})}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return ErrClosed
	}
	f.queue = append(f.queue, w)
	f.mu.Unlock()
	f.signal()
	<-w.done
	if w.err == nil || errors.Is(w.err, ErrFull) || errors.Is(w.err, ErrNotFound) || errors.Is(w.err, ErrAmbiguous) {
		return w.err
	}
	return unusable(f.path, w.err)
}

// run writes until close. Writes that waited together share one sync; where
// one of them fails, each gets a transaction of its own.
func (f *file) run() {
	for range f.wake {
		for {
			f.mu.Lock()
			batch, closed := f.queue, f.closed
			f.queue = nil
			f.mu.Unlock()
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			f.commit(batch)
			for _, w := range batch {
				close(w.done)
			}
		}
	}
}

func (f *file) commit(batch []*write) {
	err := guarded(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			for _, w := range batch {
				if err := w.fn(tx); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		return
	}
	for _, w := range batch {
		if len(batch) == 1 {
			w.err = err
			return
		}
		w.err = guarded(func() error { return f.db.Update(w.fn) })
	}
}

// view runs fn in a transaction that only reads.
func (f *file) view(fn func(*bbolt.Tx) error) error {
	if err := guarded(func() error { return f.db.View(fn) }); err != nil {
		if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
			return ErrClosed
		}
		return unusable(f.path, err)
	}
	return nil
}

func (f *file) find(key id) (s *stored, answer []byte, found bool, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket([]byte(bucketCalls)).Get(key[:])
		if v == nil {
			return nil
		}
		found = true
		var err error
		if s, err = decode(v); err != nil {
			return err
		}
		if s.HasAnswer {
			answer = slices.Clone(tx.Bucket([]byte(bucketAnswers)).Get(key[:]))
			if answer == nil {
				return errors.New("the answer of an entry is missing")
			}
		}
		return nil
	})
	return s, answer, found, err
}

// purgeSome is how many expired entries a write takes along.
const purgeSome = 32

// begin writes a running entry where there is room for it.
func (f *file) begin(key id, s *stored, limits Limits) error {
	return f.update(func(tx *bbolt.Tx) error {
		if err := purge(tx, s.Begun, purgeSome); err != nil {
			return err
		}
		size := sizeOf(s, nil)
		for {
			t, err := readTotals(tx)
			switch {
			case err != nil:
				return err
			case t.Bytes+size <= limits.MaxBytes:
				return replace(tx, key, s, nil)
			}
			if err := purge(tx, s.Begun, purgeSome); err != nil {
				return err
			}
			if after, err := readTotals(tx); err != nil || after.Entries == t.Entries {
				return errors.Join(err, ErrFull)
			}
		}
	})
}

// done writes a finished entry, with its answer where there is room for it.
func (f *file) done(key id, s *stored, answer []byte, limits Limits) error {
	return f.update(func(tx *bbolt.Tx) error {
		// The entry that it replaces makes room.
		if err := drop(tx, key); err != nil {
			return err
		}
		t, err := readTotals(tx)
		if err != nil {
			return err
		}
		s, answer := *s, answer
		switch size := sizeOf(&s, answer); {
		case len(answer) > MaxAnswer:
			s.Why, answer = fmt.Sprintf("the answer has %d bytes, and at most %d are kept", len(answer), MaxAnswer), nil
		case t.Bytes+size > limits.MaxBytes:
			s.Why, answer = "the ledger had no room for the answer", nil
		}
		return replace(tx, key, &s, answer)
	})
}

func (f *file) put(key id, s *stored) error {
	return f.update(func(tx *bbolt.Tx) error { return replace(tx, key, s, nil) })
}

func (f *file) remove(key id) error {
	return f.update(func(tx *bbolt.Tx) error { return drop(tx, key) })
}

// replace puts an entry in the place of the one with its id.
func replace(tx *bbolt.Tx, key id, s *stored, answer []byte) error {
	if err := drop(tx, key); err != nil {
		return err
	}
	s.HasAnswer = answer != nil
	s.Bytes = sizeOf(s, answer)
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := tx.Bucket([]byte(bucketCalls)).Put(key[:], data); err != nil {
		return err
	}
	if answer != nil {
		if err := tx.Bucket([]byte(bucketAnswers)).Put(key[:], answer); err != nil {
			return err
		}
	}
	if !s.Expires.IsZero() {
		if err := tx.Bucket([]byte(bucketExpiry)).Put(expiryKey(s.Expires, key), nil); err != nil {
			return err
		}
	}
	return count(tx, s, 1)
}

// drop takes an entry out, where there is one.
func drop(tx *bbolt.Tx, key id) error {
	calls := tx.Bucket([]byte(bucketCalls))
	v := calls.Get(key[:])
	if v == nil {
		return nil
	}
	s, err := decode(v)
	if err != nil {
		return err
	}
	if err := calls.Delete(key[:]); err != nil {
		return err
	}
	if s.HasAnswer {
		if err := tx.Bucket([]byte(bucketAnswers)).Delete(key[:]); err != nil {
			return err
		}
	}
	if !s.Expires.IsZero() {
		if err := tx.Bucket([]byte(bucketExpiry)).Delete(expiryKey(s.Expires, key)); err != nil {
			return err
		}
	}
	return count(tx, s, -1)
}

// purge takes out at most so many entries that have expired.
func purge(tx *bbolt.Tx, now time.Time, most int) error {
	var expired []id
	c := tx.Bucket([]byte(bucketExpiry)).Cursor()
	for k, _ := c.First(); k != nil && len(expired) < most; k, _ = c.Next() {
		if len(k) != 8+len(id{}) {
			return errors.New("an entry of its index is malformed")
		}
		if int64(binary.BigEndian.Uint64(k)) > now.UnixMilli() {
			break
		}
		expired = append(expired, id(k[8:]))
	}
	for _, key := range expired {
		if err := drop(tx, key); err != nil {
			return err
		}
	}
	return nil
}

func expiryKey(at time.Time, key id) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(max(at.UnixMilli(), 0))), key[:]...)
}

func decode(v []byte) (*stored, error) {
	s := new(stored)
	if err := json.Unmarshal(v, s); err != nil {
		return nil, fmt.Errorf("an entry cannot be read: %w", err)
	}
	return s, nil
}

func sizeOf(s *stored, answer []byte) int64 {
	return int64(len(s.Principal)+len(s.Server)+len(s.Tool)+len(s.Key)+len(s.Arguments)+len(s.Why)+len(answer)) + overhead
}

func (f *file) totals() (t totals, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		t, err = readTotals(tx)
		return err
	})
	return t, err
}

func readTotals(tx *bbolt.Tx) (t totals, err error) {
	err = json.Unmarshal(tx.Bucket([]byte(bucketMeta)).Get([]byte(keyTotals)), &t)
	return t, err
}

func putTotals(tx *bbolt.Tx, t totals) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyTotals), data)
}

func count(tx *bbolt.Tx, s *stored, sign int64) error {
	t, err := readTotals(tx)
	if err != nil {
		return err
	}
	t.add(s, sign)
	return putTotals(tx, t)
}

func (f *file) list(state State, most int, now time.Time) (all []Record, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketCalls)).ForEach(func(_, v []byte) error {
			s, err := decode(v)
			if err != nil {
				return err
			}
			if !s.expired(now) && (state == "" || s.State == state) {
				all = append(all, s.Record)
			}
			return nil
		})
	})
	slices.SortFunc(all, func(a, b Record) int { return a.Begun.Compare(b.Begun) })
	return all[max(0, len(all)-most):], err
}

// resolve settles the unknown entry whose id begins with prefix.
func (f *file) resolve(prefix string, tookEffect bool, now time.Time, keep time.Duration, isRunning func(id) bool) (r Record, err error) {
	err = f.update(func(tx *bbolt.Tx) error {
		var found []id
		err := tx.Bucket([]byte(bucketCalls)).ForEach(func(k, v []byte) error {
			if !strings.HasPrefix(id(k).String(), prefix) || prefix == "" {
				return nil
			}
			s, err := decode(v)
			if err != nil {
				return err
			}
			if s.State != Done && !isRunning(id(k)) {
				found = append(found, id(k))
				r = s.Record
			}
			return nil
		})
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return ErrNotFound
		case len(found) > 1:
			return ErrAmbiguous
		case !tookEffect:
			return drop(tx, found[0])
		}
		s, err := decode(tx.Bucket([]byte(bucketCalls)).Get(found[0][:]))
		if err != nil {
			return err
		}
		s.State, s.Ended, s.Expires = Done, now, now.Add(keep)
		s.Why = "settled by the user: it took effect, and its answer is not known"
		r = s.Record
		return replace(tx, found[0], s, nil)
	})
	return r, err
}
