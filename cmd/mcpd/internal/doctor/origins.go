package doctor

import (
	"context"
	"fmt"
	"strings"
)

// checkOrigins finds entries of allowed_origins that no browser ever sends. The
// config has seen to it that they have the right form.
func (d *doctor) checkOrigins(context.Context) {
	const check = "origins"
	if d.config == nil {
		return
	}
	list := d.config.Security.AllowedOrigins
	if len(list) == 0 {
		d.ok(check, "no web page but mcpd's own may call it; programs need no entry")
		return
	}
	var details, mend []string
	for _, origin := range list {
		if why, instead := neverSent(origin); why != "" {
			details = append(details, fmt.Sprintf("%q: %s", origin, why))
			mend = append(mend, instead)
		}
	}
	if len(details) > 0 {
		d.trouble(check, "entries of allowed_origins can never match", details, mend)
		return
	}
	d.ok(check, fmt.Sprintf("allowed: %s", strings.Join(list, ", ")))
}

func neverSent(origin string) (why, instead string) {
	scheme, host, _ := strings.Cut(origin, "://")
	switch scheme {
	case "ws", "wss":
		http := "http" + strings.TrimPrefix(scheme, "ws")
		return "the origin of a page is that of its address, which begins with " + http + "://", fmt.Sprintf("write %q", http+"://"+host)
	case "file", "data", "blob", "about", "javascript":
		return "browsers send null for such pages, which is never allowed", "serve the page by http from a port of this computer, and list that"
	case "chrome-extension":
		if len(host) != 32 || strings.Trim(host, "abcdefghijklmnop") != "" {
			return "the id of an extension has 32 of the letters a to p", "copy the id from chrome://extensions"
		}
	case "moz-extension":
		if len(host) != 36 || strings.Count(host, "-") != 4 {
			return "the id here is the internal UUID of the extension", "copy it from about:debugging"
		}
	}
	if host == "0.0.0.0" || strings.HasPrefix(host, "0.0.0.0:") {
		return "0.0.0.0 is where a server listens; pages are opened at localhost or 127.0.0.1", fmt.Sprintf("write %q", scheme+"://localhost"+strings.TrimPrefix(host, "0.0.0.0"))
	}
	return "", ""
}
