package main

import "testing"

func TestHalfOfTheProcessorsRunTheDaemon(t *testing.T) {
	for machine, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: 4, 64: 32} {
		if got := processorsOf(machine); got != want {
			t.Errorf("%d of %d, want %d", got, machine, want)
		}
	}
}
