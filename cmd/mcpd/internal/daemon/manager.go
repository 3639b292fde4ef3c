package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
)

// listen opens the daemon's addresses, with the sockets that the service
// manager holds where there are some.
func (d *Daemon) listen(ctx context.Context, addr netip.AddrPort) ([]net.Listener, error) {
	ls, err := listenOrTake(ctx, addr, d.opts.Sockets)
	for _, other := range d.opts.Sockets.Addresses() {
		d.logger.Warn("the service manager holds a port that mcpd does not use; mcpd service restart mends that",
			"held", other, "used", addr)
	}
	if cerr := d.opts.Sockets.Close(); cerr != nil {
		d.logger.Debug("closing sockets of the service manager", "error", cerr)
	}
	return ls, err
}

func (d *Daemon) tellManager(states ...string) {
	if err := d.opts.Manager.Notify(states...); err != nil {
		d.logger.Warn("the service manager does not know how mcpd is", "error", err)
	}
}

// reportAlive keeps the service manager from restarting the daemon for as long
// as requests are answered.
func (d *Daemon) reportAlive(ctx context.Context) {
	transport := &http.Transport{Proxy: nil, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	d.opts.Manager.Watchdog(ctx, func(ctx context.Context) error {
		// The answer of the gate to what needs no token: a bare 404.
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Addr()+"/.well-known/", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusNotFound {
			err = fmt.Errorf("it answered %s", resp.Status)
		}
		if cerr := resp.Body.Close(); err == nil {
			err = cerr
		}
		return err
	}, func(err error) { d.logger.Error("mcpd does not answer itself", "error", err) })
}
