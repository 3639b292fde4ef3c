package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// echoServer is the stdio server behind every bridge: it answers tools/call
// with its text argument, by finding bytes instead of decoding, so that it is
// never what limits a measurement. It speaks both eras.
func echoServer(in io.Reader, out io.Writer) error {
	r := bufio.NewReaderSize(in, 1<<20)
	w := bufio.NewWriterSize(out, 1<<20)
	var line []byte
	for {
		line = line[:0]
		for {
			chunk, err := r.ReadSlice('\n')
			line = append(line, chunk...)
			if err == nil {
				break
			}
			if err != bufio.ErrBufferFull {
				return nil
			}
		}
		answer(w, line)
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

const tool = `{"name":"echo","description":"Says it again.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`

func answer(w *bufio.Writer, line []byte) {
	id := raw(line, `"id":`)
	if id == nil {
		return
	}
	const modern = `"resultType":"complete",`
	switch method := string(raw(line, `"method":`)); method {
	case `"tools/call"`:
		text := raw(line, `"text":`)
		if text == nil {
			text = []byte(`""`)
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{`+modern+`"content":[{"type":"text","text":`, id)
		w.Write(text)
		w.WriteString("}]}}\n")
	case `"tools/list"`:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{`+modern+`"ttlMs":0,"cacheScope":"public","tools":[%s]}}`+"\n", id, tool)
	case `"server/discover"`:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{`+modern+`"ttlMs":0,"cacheScope":"public","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"echo","version":"1"}}}}`+"\n", id)
	case `"initialize"`:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}`+"\n", id)
	case `"ping"`:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", id)
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`+"\n", id)
	}
}

// raw gives the string or number behind the first occurrence of key. The
// driver's texts hold no escapes, so the next quote ends a string.
func raw(line []byte, key string) []byte {
	i := bytes.Index(line, []byte(key))
	if i < 0 {
		return nil
	}
	v := bytes.TrimLeft(line[i+len(key):], " ")
	if len(v) > 0 && v[0] == '"' {
		if end := bytes.IndexByte(v[1:], '"'); end >= 0 {
			return v[:end+2]
		}
		return nil
	}
	end := bytes.IndexAny(v, ",}")
	if end < 0 {
		return nil
	}
	return bytes.TrimSpace(v[:end])
}
