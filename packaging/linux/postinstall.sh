#!/bin/sh
# After an update the new program takes over where mcpd runs as a service. A
# first installation starts nothing: that is for each user to ask for, with
# `mcpd service install`.
set -e

case "$1" in
configure) [ -n "$2" ] || exit 0 ;; # deb: $2 is the version before
2) ;;                               # rpm: an update
*) exit 0 ;;
esac

for runtime in /run/user/*; do
	[ -S "$runtime/systemd/private" ] || continue
	name=$(id -nu "${runtime##*/}") || continue
	as_user="runuser -u $name -- env XDG_RUNTIME_DIR=$runtime systemctl --user"
	$as_user daemon-reload || true
	case "$($as_user show mcpd.service --property=ExecStart)" in
	*path=/usr/bin/mcpd\ *) $as_user --no-block try-restart mcpd.service || true ;;
	esac
done
if [ -d /run/systemd/system ]; then
	case "$(systemctl show mcpd.service --property=ExecStart)" in
	*path=/usr/bin/mcpd\ *) systemctl --no-block try-restart mcpd.service || true ;;
	esac
fi
exit 0
