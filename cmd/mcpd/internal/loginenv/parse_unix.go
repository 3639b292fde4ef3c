//go:build unix

package loginenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// parse finds what Print wrote and leaves out what describes the shell itself.
func parse(out []byte) (map[string]string, error) {
	_, rest, ok := bytes.Cut(out, []byte(fence))
	if !ok {
		return nil, errors.New("the shell did not run the command that prints its environment")
	}
	data, _, ok := bytes.Cut(rest, []byte(fence))
	if !ok {
		return nil, errors.New("the shell's output is cut off")
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, errors.New("the shell's output is damaged")
	}
	env := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			continue
		}
		switch k {
		case "_", "PWD", "OLDPWD", "SHLVL", "PS1":
			continue
		}
		// mcpd's own variables are for mcpd, not for its servers.
		if strings.HasPrefix(k, "MCPD_") {
			continue
		}
		env[k] = v
	}
	return env, nil
}
