package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// benchMessages are messages of three sizes: a small call, one whose argument
// is a long text with escapes, and a result with many small values.
func benchMessages() []struct {
	name string
	data []byte
} {
	small := `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}},"name":"echo","arguments":{"message":"hello"}}}`
	text := func(n int) []byte {
		line := `The quick brown fox jumps over the lazy dog, \"again\".\n`
		return []byte(`{"jsonrpc":"2.0","id":"a-1","result":{"content":[{"type":"text","text":"` +
			strings.Repeat(line, n/len(line)) + `"}],"resultType":"complete"}}`)
	}
	blob := func(n int) []byte {
		return []byte(`{"jsonrpc":"2.0","id":"a-1","result":{"content":[{"type":"image","data":"` +
			strings.Repeat("QUJDREVGR0g5", n/12) + `"}],"resultType":"complete"}}`)
	}
	cjk := func(n int) []byte {
		return []byte(`{"jsonrpc":"2.0","id":"a-1","result":{"content":[{"type":"text","text":"` +
			strings.Repeat("世界你好", n/12) + `"}],"resultType":"complete"}}`)
	}
	nested := func(n int) []byte {
		var b bytes.Buffer
		b.WriteString(`{"jsonrpc":"2.0","id":3,"result":{"structuredContent":{"rows":[`)
		for i := 0; b.Len() < n; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"id":%d,"name":"row %d","score":%d.25,"ok":true,"tags":["a","b"]}`, i, i, i)
		}
		b.WriteString(`]},"resultType":"complete"}}`)
		return b.Bytes()
	}
	return []struct {
		name string
		data []byte
	}{
		{"200B", []byte(small)},
		{"64KiB-text", text(64 << 10)},
		{"64KiB-rows", nested(64 << 10)},
		{"1MiB-text", text(1 << 20)},
		{"1MiB-blob", blob(1 << 20)},
		{"1MiB-cjk", cjk(1 << 20)},
		{"1MiB-rows", nested(1 << 20)},
	}
}

func BenchmarkScan(b *testing.B) {
	for _, c := range benchMessages() {
		b.Run(c.name, func(b *testing.B) {
			var m Message
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Scan(c.data, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJSONText reads the same messages token by token at the levels that
// Scan looks at, with one decoder that is reused.
func BenchmarkJSONText(b *testing.B) {
	for _, c := range benchMessages() {
		b.Run(c.name, func(b *testing.B) {
			r := bytes.NewReader(nil)
			dec := jsontext.NewDecoder(r)
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(c.data)
				dec.Reset(r)
				if _, err := dec.ReadToken(); err != nil {
					b.Fatal(err)
				}
				for dec.PeekKind() == '"' {
					if err := dec.SkipValue(); err != nil {
						b.Fatal(err)
					}
					if err := dec.SkipValue(); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := dec.ReadToken(); err != nil {
					b.Fatal(err)
				}
				if _, err := dec.ReadToken(); err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncodingJSON decodes the same messages the usual way.
func BenchmarkEncodingJSON(b *testing.B) {
	for _, c := range benchMessages() {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				var m struct {
					JSONRPC string          `json:"jsonrpc"`
					ID      json.RawMessage `json:"id"`
					Method  string          `json:"method"`
					Params  json.RawMessage `json:"params"`
					Result  json.RawMessage `json:"result"`
				}
				if err := json.Unmarshal(c.data, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendLine(b *testing.B) {
	for _, c := range benchMessages() {
		b.Run(c.name, func(b *testing.B) {
			var m Message
			if err := Scan(c.data, &m); err != nil {
				b.Fatal(err)
			}
			edit := Edit{Span: m.ID.Value, New: []byte("123456")}
			var dst []byte
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendLine(dst[:0], c.data, edit)
			}
		})
	}
}
