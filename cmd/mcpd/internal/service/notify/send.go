package notify

import (
	"net"
	"time"
)

// sendTimeout bounds how long a service manager that does not read may hold up
// the daemon.
const sendTimeout = 2 * time.Second

func send(socket, state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		_ = conn.Close()
		return err
	}
	if _, err := conn.Write([]byte(state)); err != nil {
		_ = conn.Close()
		return err
	}
	return conn.Close()
}
