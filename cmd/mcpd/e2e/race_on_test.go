//go:build race

package e2e

// raceDetector says that these tests run with the race detector; the program under test then has it too.
const raceDetector = true
