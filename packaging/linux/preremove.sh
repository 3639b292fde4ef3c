#!/bin/sh
# Before the program goes, the services that run it are stopped and taken out.
# Nobody's config, token, logs or state is touched.
set -e

case "$1" in
remove | 0) ;;  # deb, rpm
*) exit 0 ;;    # an update
esac

for runtime in /run/user/*; do
	[ -S "$runtime/systemd/private" ] || continue
	name=$(id -nu "${runtime##*/}") || continue
	home=$(getent passwd "$name" | cut -d: -f6)
	case "$(runuser -u "$name" -- env XDG_RUNTIME_DIR="$runtime" systemctl --user show mcpd.service --property=ExecStart)" in
	*path=/usr/bin/mcpd\ *)
		runuser -u "$name" -- env HOME="$home" XDG_RUNTIME_DIR="$runtime" /usr/bin/mcpd service uninstall ||
			echo "mcpd: the service of $name could not be taken out; as that user: systemctl --user disable --now mcpd" >&2
		;;
	esac
done
if [ -d /run/systemd/system ]; then
	case "$(systemctl show mcpd.service --property=ExecStart)" in
	*path=/usr/bin/mcpd\ *) /usr/bin/mcpd service uninstall --system || true ;;
	esac
fi
exit 0
