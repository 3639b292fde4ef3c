// Package config turns mcpd's TOML file into a [Config] value and says precisely what is wrong with a file that
// cannot become one.
//
// It owns the keys of the file (their names, types, defaults and ranges), the expansion of ${…} references, the
// places where the file and the state live, the difference between two configurations ([Diff]) and the watch on the
// file ([Watcher]).
//
// The promises:
//
//   - Nothing is guessed. An unknown key, a wrong type, a repeated key, a number where a duration belongs: each is a
//     [Problem] with file, line and column, and all of them are reported in one go, sorted.
//   - A [Config] is complete and valid, or there is none. Defaults are merged in, so that nobody else needs to know them.
//   - The package never starts, stops or changes anything: whoever holds two configurations decides what to do.
//   - What a ${env:…} or ${file:…} reference stands for is never part of an error and never printed by a Config or a
//     Server, whatever the verb: arguments and environment variables carry secrets.
package config
