package importer

import (
	"net/url"
	"regexp"
	"strings"
)

// LooksSecret says whether a variable's value written out in a file or on a
// command line is probably a secret: by the variable's name or by the value's
// form. A value that is only references is none.
func LooksSecret(name, value string) bool {
	plain := withoutReferences(value)
	if strings.TrimSpace(plain) == "" || harmless(plain) {
		return false
	}
	return secretName(name) || secretValue(plain)
}

// SecretArgument is where an argument probably holds a secret.
type SecretArgument struct {
	Index int
	// Prefix is what stands before the secret: "--token=" or nothing.
	Prefix string
	// Name is that of the option, or "".
	Name string
}

// SecretArguments finds the arguments that probably hold a secret: by the
// option that they are given with, or by their form.
func SecretArguments(args []string) []SecretArgument {
	var found []SecretArgument
	for i, arg := range args {
		if name, value, joined := strings.Cut(arg, "="); joined && !strings.Contains(name, "://") && LooksSecret(strings.TrimLeft(name, "-"), value) {
			found = append(found, SecretArgument{i, name + "=", strings.TrimLeft(name, "-")})
			continue
		}
		option := ""
		if i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(args[i-1], "=") && !strings.HasPrefix(arg, "-") {
			option = strings.TrimLeft(args[i-1], "-")
		}
		if LooksSecret(option, arg) {
			found = append(found, SecretArgument{i, "", option})
		}
	}
	return found
}

// withoutReferences cuts ${…} out.
func withoutReferences(s string) string { return reference().ReplaceAllString(s, "") }

func reference() *regexp.Regexp { return regexp.MustCompile(`\$\{[^}]*\}`) }

// harmless values say nothing, whatever the variable is called: switches,
// numbers, places.
func harmless(value string) bool {
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "none", "null":
		return true
	}
	if strings.Trim(value, "0123456789.") == "" && len(value) < 12 {
		return true
	}
	if strings.HasPrefix(value, "/") || strings.HasPrefix(value, "~") || strings.HasPrefix(value, "./") {
		return true
	}
	return len(value) > 2 && value[1] == ':' && (value[2] == '\\' || value[2] == '/') // C:\…
}

func secretName(name string) bool {
	words := strings.FieldsFunc(strings.ToUpper(snake(name)), func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	for i, w := range words {
		switch w {
		case "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PWD", "PASS", "APIKEY", "ACCESSKEY",
			"CREDENTIAL", "CREDENTIALS", "PAT", "BEARER", "AUTHORIZATION", "COOKIE", "DSN":
			return i == len(words)-1 || !isPlace(words[len(words)-1])
		case "KEY":
			return i == len(words)-1 // API_KEY, but not KEY_FILE
		}
	}
	return false
}

// isPlace says that a name ends in what tells where something is.
func isPlace(word string) bool {
	switch word {
	case "FILE", "PATH", "DIR", "URL", "URI", "ENDPOINT", "NAME", "TTL", "LIMIT", "COUNT", "TYPE":
		return true
	}
	return false
}

// snake puts a separator before capitals in the middle: apiKey is api_Key.
func snake(name string) string {
	var b strings.Builder
	var last rune
	for _, r := range name {
		if r >= 'A' && r <= 'Z' && last >= 'a' && last <= 'z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
		last = r
	}
	return b.String()
}

// secretValue knows the forms of common tokens.
func secretValue(value string) bool {
	v := strings.TrimSpace(value)
	if len(v) >= 16 {
		for _, prefix := range []string{
			"sk-", "sk_live_", "sk_test_", "rk_live_", "ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "xoxa-",
			"xapp-", "AKIA", "ASIA", "AIza", "ya29.", "eyJ", "hf_", "npm_", "pypi-", "dop_v1_", "shpat_", "ntn_", "secret_", "lin_api_",
			"Bearer ", "Basic ", "-----BEGIN ", "tvly-", "pplx-", "figd_", "SG.", "ATATT",
		} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
	}
	if strings.Contains(v, "://") {
		if u, err := url.Parse(v); err == nil {
			if password, has := u.User.Password(); has && password != "" {
				return true
			}
			for key, values := range u.Query() {
				if secretName(key) && len(values[0]) >= 8 {
					return true
				}
			}
		}
	}
	return false
}
