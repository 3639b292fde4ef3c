package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/security"
)

// tokenKeeper changes tokens: the running daemon, so that it knows at once, or
// the state folder itself.
type tokenKeeper interface {
	ListTokens(context.Context) ([]control.Token, error)
	CreateToken(context.Context, control.NewToken) (control.CreatedToken, error)
	RevokeToken(ctx context.Context, idOrName string) error
	RotateToken(context.Context) error
}

// offlineTokens is a tokenKeeper while no daemon runs.
type offlineTokens struct{ control.Tokens }

func (t offlineTokens) ListTokens(context.Context) ([]control.Token, error) { return t.List(), nil }

func (t offlineTokens) CreateToken(_ context.Context, n control.NewToken) (control.CreatedToken, error) {
	return t.Create(n)
}

func (t offlineTokens) RevokeToken(_ context.Context, idOrName string) error {
	return t.Revoke(idOrName)
}

func (t offlineTokens) RotateToken(context.Context) error { return t.Rotate() }

func (a *app) openTokens() (*security.TokenStore, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	return security.OpenTokenStore(dir, security.TokenStoreOptions{})
}

func (a *app) withTokens(cmd *cobra.Command, fn func(context.Context, tokenKeeper) error) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	c, err := a.connect()
	if err == nil {
		defer c.Close()
		return fn(ctx, c)
	}
	// Without a daemon, and without a default token to ask it with, the files
	// are changed; a daemon sees that within a second.
	store, storeErr := a.openTokens()
	if storeErr != nil {
		return storeErr
	}
	if _, showErr := store.Show(); showErr == nil && !errors.Is(err, instance.ErrNotRunning) {
		return err
	}
	return fn(ctx, offlineTokens{control.Tokens{Store: store}})
}

func (a *app) tokenCommand() *cobra.Command {
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the default token",
		Long: `Print the default token, and nothing else, on stdout. It has every right: give it
only to programs of your own. mcpd need not be running.`,
		Example: `  mcpd token show
  curl -H "Authorization: Bearer $(mcpd token show)" …`,
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			store, err := a.openTokens()
			if err != nil {
				return err
			}
			token, err := store.Show()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, token.Reveal())
			return err
		},
	}
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the default token by a new one",
		Long: `Replace the default token by a new one. The old one is refused from then on:
give the new one, which mcpd token show prints, to every program that had it.`,
		Example: "  mcpd token rotate && mcpd token show",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTokens(cmd, func(ctx context.Context, k tokenKeeper) error {
				if err := k.RotateToken(ctx); err != nil {
					return err
				}
				_, err := fmt.Fprintln(a.err, "the default token was replaced; mcpd token show prints the new one")
				return err
			})
		},
	}
	list := a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List the tokens and their rights",
		Long:  "List the tokens and their rights. The tokens themselves are not stored and cannot be shown.",
		Args:  usage(cobra.NoArgs),
		Example: `  mcpd token list
  mcpd token list --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTokens(cmd, func(ctx context.Context, k tokenKeeper) error {
				tokens, err := k.ListTokens(ctx)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(tokens)
				}
				rows := [][]cell{{{"ID", faint}, {"NAME", faint}, {"STATE", faint}, {"SERVERS", faint}, {"ADMIN", faint}, {"MADE", faint}, {"EXPIRES", faint}}}
				for _, t := range tokens {
					servers, admin, colour := "all", "no", green
					if t.Servers != nil {
						servers = strings.Join(t.Servers, ",")
					}
					if t.Admin {
						admin = "yes"
					}
					if t.State != security.TokenActive {
						colour = faint
					}
					rows = append(rows, []cell{
						{t.ID, ""},
						{t.Name, ""},
						{string(t.State), colour},
						{servers, ""},
						{admin, ""},
						{day(t.CreatedAt), ""},
						{day(t.ExpiresAt), ""},
					})
				}
				writeTable(a.out, rows, painter(a.out))
				return nil
			})
		},
	})

	var admin bool
	var servers []string
	var ttl time.Duration
	create := a.jsonFlag(&cobra.Command{
		Use:   "create NAME",
		Short: "Make a token with fewer rights",
		Long: `Make a token and print it, alone, on stdout. It is shown this once: only a hash
is stored. Without --server it may use every server, without --admin it may not
control the daemon.`,
		Example: `  mcpd token create vscode
  mcpd token create ci --server files --server memory --ttl 24h`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < 0 || ttl%time.Second != 0 {
				return usageError{fmt.Errorf("--ttl cannot be %s", ttl), "it is a whole number of seconds, such as 24h"}
			}
			return a.withTokens(cmd, func(ctx context.Context, k tokenKeeper) error {
				t, err := k.CreateToken(ctx, control.NewToken{
					Name: args[0], Admin: admin, Servers: servers, TTLSeconds: int64(ttl / time.Second),
				})
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(t)
				}
				_, err = fmt.Fprintln(a.out, t.Secret)
				return err
			})
		},
	})
	create.Flags().BoolVar(&admin, "admin", false, "it may control the daemon as well")
	create.Flags().StringArrayVar(&servers, "server", nil, "it may use this server; may be given more than once")
	create.Flags().DurationVar(&ttl, "ttl", 0, "it expires after this time, such as 24h")

	revoke := &cobra.Command{
		Use:     "revoke ID|NAME",
		Short:   "Make mcpd refuse a token",
		Long:    "Make mcpd refuse a token from now on. The programs that had it get no more answers.",
		Example: "  mcpd token revoke ci",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTokens(cmd, func(ctx context.Context, k tokenKeeper) error {
				if err := k.RevokeToken(ctx, args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.err, "token %s is refused from now on\n", args[0])
				return err
			})
		},
	}
	return a.group(&cobra.Command{
		Use:   "token",
		Short: "Show, make and revoke access tokens",
		Long:  "Show, make and revoke the tokens by which mcpd knows who may call it.",
	}, show, rotate, list, create, revoke)
}

func day(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04")
}
