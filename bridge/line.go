package bridge

import (
	"bytes"
	"io"

	"mcpd/bridge/jsonrpc"
)

const (
	// readAhead is how much of stdout is read at once while messages are short.
	readAhead = 64 << 10
	// longReadAhead is the same once a message was longer than readAhead.
	longReadAhead = 256 << 10
	// longBody is from which size on a request's body is not copied into its
	// line, and wholePiece how short the pieces are that are copied all the same.
	longBody   = 64 << 10
	wholePiece = 8 << 10
)

// lineOfRequest makes the line that carries a request to the server. A long
// body is not copied: the line shares it with the request.
func lineOfRequest(in *incoming, edits []jsonrpc.Edit) line {
	data := in.data()
	if len(data) < longBody {
		size := len(data) + 1
		for _, e := range edits {
			size += len(e.New)
		}
		buf := newBuffer(size)
		buf.b = jsonrpc.AppendLine(buf.b, data, edits...)
		return line{buf: buf}
	}
	if in.msg.HasNewline {
		jsonrpc.Blank(data)
		in.msg.HasNewline = false
	}
	l := line{buf: newBuffer(2 * wholePiece), body: in.body.retain()}
	l.buf.b, l.pieces = jsonrpc.Pieces(l.buf.b, nil, data, wholePiece, edits...)
	return l
}

// lineReader cuts what a server writes into lines. A short line is copied from
// the chunk that was read ahead; a long one is read to where it stays.
type lineReader struct {
	in    io.Reader
	limit int64 // of one line, bytes
	chunk []byte
	// What of the chunk was not given out yet, and how far it was searched
	// for the end of a line.
	start, searched, end int
	long                 bool
}

func newLineReader(in io.Reader, limit int64) *lineReader {
	return &lineReader{in: in, limit: limit, chunk: make([]byte, readAhead)}
}

// next reads up to and without the next newline. size is the line's whole
// size; of one over the limit only the ends are kept. buf is nil where there
// is nothing to read any more. With an error there is no newline.
func (r *lineReader) next() (buf *buffer, size int64, err error) {
	for {
		if i := bytes.IndexByte(r.chunk[r.searched:r.end], '\n'); i >= 0 {
			text := r.chunk[r.start : r.searched+i]
			r.start = r.searched + i + 1
			r.searched = r.start
			return r.copied(text), int64(len(text)), nil
		}
		r.searched = r.end
		switch {
		case r.start == r.end:
			r.start, r.searched, r.end = 0, 0, 0
		case r.end < len(r.chunk):
		case r.start == 0:
			return r.nextLong()
		default:
			r.end = copy(r.chunk, r.chunk[r.start:r.end])
			r.start, r.searched = 0, r.end
			continue
		}
		n, err := r.in.Read(r.chunk[r.end:])
		r.end += n
		if err == nil || n > 0 && bytes.IndexByte(r.chunk[r.searched:r.end], '\n') >= 0 {
			// An error comes again with the next read.
			continue
		}
		text := r.chunk[r.start:r.end]
		r.start, r.searched, r.end = 0, 0, 0
		if len(text) == 0 {
			return nil, 0, err
		}
		return r.copied(text), int64(len(text)), err
	}
}

func (r *lineReader) copied(text []byte) *buffer {
	buf := newBuffer(len(text))
	buf.b = append(buf.b, text...)
	r.clip(buf, int64(len(text)))
	return buf
}

// clip keeps only the ends of a line over the limit.
func (r *lineReader) clip(buf *buffer, size int64) {
	if over := len(buf.b) - 2*sampleOfOversize; size > r.limit+2 && over > 0 {
		buf.b = append(buf.b[:sampleOfOversize], buf.b[len(buf.b)-sampleOfOversize:]...)
	}
}

// nextLong reads a line of which the chunk is full.
func (r *lineReader) nextLong() (buf *buffer, size int64, err error) {
	if !r.long {
		r.long = true
		makeRoom(r.in)
	}
	buf = newBuffer(4 * r.end)
	buf.b = append(buf.b, r.chunk[:r.end]...)
	size = int64(r.end)
	r.start, r.searched, r.end = 0, 0, 0
	if len(r.chunk) < longReadAhead {
		r.chunk = make([]byte, longReadAhead) // what follows the line has to fit
	}
	for {
		r.clip(buf, size)
		buf.grow(readAhead)
		had := len(buf.b)
		n, err := r.in.Read(buf.b[had:min(cap(buf.b), had+len(r.chunk))])
		buf.b = buf.b[:had+n]
		if i := bytes.IndexByte(buf.b[had:], '\n'); i >= 0 {
			r.end = copy(r.chunk, buf.b[had+i+1:])
			buf.b = buf.b[:had+i]
			size += int64(i)
			r.clip(buf, size)
			return buf, size, nil // an error comes again with the next read
		}
		size += int64(n)
		if err != nil {
			r.clip(buf, size)
			return buf, size, err
		}
	}
}
