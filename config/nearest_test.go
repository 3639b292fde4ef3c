package config

import "testing"

func TestNothingIsTakenForANameThatHasNothingOfIt(t *testing.T) {
	for got, want := range map[string]string{"x": "", "comand": "command", "lss": "ls", "": "", "q": ""} {
		if near := Nearest(got, []string{"[", "ls", "command"}); near != want {
			t.Errorf("%q is taken for %q, want %q", got, near, want)
		}
	}
}
