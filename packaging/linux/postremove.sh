#!/bin/sh
# Managers that had the package's unit loaded forget it.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac

for runtime in /run/user/*; do
	[ -S "$runtime/systemd/private" ] || continue
	name=$(id -nu "${runtime##*/}") || continue
	runuser -u "$name" -- env XDG_RUNTIME_DIR="$runtime" systemctl --user daemon-reload || true
done
exit 0
