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
# Of users whose systemd does not run there are files alone. They are looked at as
# their owner, who could lead root elsewhere.
getent passwd | while IFS=: read -r name _ uid _ _ home _; do
	if [ "$uid" -ge 1000 ] || [ "$uid" -eq 0 ]; then :; else continue; fi
	[ ! -S "/run/user/$uid/systemd/private" ] || continue
	unit=$home/.config/systemd/user/mcpd.service
	[ -e "$unit" ] || continue
	timeout 10 runuser -u "$name" -- grep -qs '^ExecStart="\{0,1\}/usr/bin/mcpd[" ]' "$unit" </dev/null || continue
	timeout 60 runuser -u "$name" -- env -u XDG_RUNTIME_DIR HOME="$home" /usr/bin/mcpd service uninstall </dev/null ||
		echo "mcpd: the service of $name could not be taken out; it does nothing without the program" >&2
done
if [ -d /run/systemd/system ]; then
	case "$(systemctl show mcpd.service --property=ExecStart)" in
	*path=/usr/bin/mcpd\ *) /usr/bin/mcpd service uninstall --system || true ;;
	esac
fi
exit 0
