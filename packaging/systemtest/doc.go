// Package systemtest installs mcpd's packages on real systems and watches what
// they do: a Debian of its own under systemd-nspawn, and Windows as Wine knows
// it. It holds tests only; they need root and tools that .ci/run installs.
package systemtest
