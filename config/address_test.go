package config

import "testing"

func TestOnlyLoopbackAddressesAreListenedOn(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:7317": "127.0.0.1:7317", "127.8.9.10:1": "127.8.9.10:1", "[::1]:7317": "[::1]:7317", "localhost:7317": "127.0.0.1:7317",
		"LOCALHOST:0": "127.0.0.1:0", "127.0.0.1:0": "127.0.0.1:0",
	} {
		got, f := parseListen(text)
		if f != nil || got.String() != want {
			t.Errorf("%s: %v, %v", text, got, f)
		}
	}
	for _, text := range []string{
		"", ":7317", "0.0.0.0:7317", "[::]:7317", "192.168.1.1:7317", "example.com:7317", "localhost.evil.example:7317",
		"127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:+1", "[::ffff:127.0.0.1]:1",
		"[::1%lo]:1", "::1:7317", "127.1:7317", "0x7f.0.0.1:1", "2130706433:1", "128.0.0.1:1", "http://127.0.0.1:1", "127.0.0.1:1 ",
	} {
		if got, f := parseListen(text); f == nil {
			t.Errorf("%q was accepted as %v", text, got)
		}
	}
}

func TestOriginsGetTheFormThatBrowsersSend(t *testing.T) {
	for text, want := range map[string]string{
		"http://localhost:6274": "http://localhost:6274", "HTTP://LOCALHOST": "http://localhost", "http://a.example:80": "http://a.example",
		"https://a.example:443": "https://a.example", "https://a.example:80": "https://a.example:80", "http://a:0080": "http://a",
		"http://[::1]:1": "http://[::1]:1", "http://[0:0::1]": "http://[::1]", "http://127.0.0.1:1": "http://127.0.0.1:1",
		"vscode-webview://0a-b_c": "vscode-webview://0a-b_c", "chrome-extension://abc": "chrome-extension://abc",
		"app://x:80": "app://x:80", "https://xn--bcher-kva.example": "https://xn--bcher-kva.example",
	} {
		if got, f := parseOrigin(text); f != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, f)
		}
	}
	for _, text := range []string{
		"", "null", "*", "http://*", "http://*.example.com", "http://", "://a", "a", "a:1", "//a", "http:/a", "http://a/", "http://a/b",
		"http://a?b", "http://a#b", "http://u@a", "http://u:p@a", "http://a:0", "http://a:65536", "http://a:", "http://a:x", "http://a b",
		" http://a", "http://a\n", "http://a..b", "http://a.", "http://ü.example", "http://127.1", "http://0x7f.1", "http://127.0x1", "http://0x7f000001", "http://1", "http://[::1",
		"http://[::1]x", "http://::1", "http://[::ffff:1.2.3.4]", "http://[fe80::1%25eth0]", "ht tp://a", "1http://a", "file://", "http://a:1:2",
		"http://a,http://b", "http://a\x00",
	} {
		if got, f := parseOrigin(text); f == nil {
			t.Errorf("%q was accepted as %q", text, got)
		}
	}
}

func TestHostsAreANameOrAddressWithOrWithoutAPort(t *testing.T) {
	for text, want := range map[string]string{
		"MCPD.local": "mcpd.local", "mcpd.local:7317": "mcpd.local:7317", "[::1]:7317": "[::1]:7317", "10.0.0.1:80": "10.0.0.1:80",
	} {
		if got, f := parseHost(text); f != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, f)
		}
	}
	for _, text := range []string{"", "*", "*.a", "http://a", "a/b", "a:", "a:b", "::1", "a b", "a:0", ":80", "a@b", "."} {
		if got, f := parseHost(text); f == nil {
			t.Errorf("%q was accepted as %q", text, got)
		}
	}
}
