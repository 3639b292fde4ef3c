package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/mcpclient"
)

// client is an MCP client of one server, through the daemon.
func (c *connection) client(server string) (*mcpclient.Client, func()) {
	h := c.identity.NewHTTPClient()
	return mcpclient.New(mcpclient.Options{
		HTTP: h, URL: "http://" + c.identity.Address + "/servers/" + server + "/mcp", Token: c.token, Version: version(),
	}), h.CloseIdleConnections
}

// withServer runs fn with an MCP client of a configured server.
func (a *app) withServer(cmd *cobra.Command, name string, fn func(context.Context, *mcpclient.Client) error) error {
	return a.withDaemon(cmd, func(ctx context.Context, c *connection) error {
		st, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if _, err := serverIn(st, name); err != nil {
			return err
		}
		client, done := c.client(name)
		defer done()
		return fn(ctx, client)
	})
}

func (a *app) toolsCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "tools NAME",
		Short: "List the tools of a server",
		Long: `List the tools of a server, asked through mcpd's own endpoint as any client does.
With --json, print them as the server describes them.`,
		Example: `  mcpd tools demo
  mcpd tools demo --json | jq '.[0].inputSchema'`,
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServer(cmd, args[0], func(ctx context.Context, c *mcpclient.Client) error {
				tools, err := c.ListTools(ctx)
				if err != nil {
					return err
				}
				if a.json {
					raw := make([]json.RawMessage, len(tools))
					for i, t := range tools {
						raw[i] = t.Raw
					}
					return a.printJSON(raw)
				}
				rows := make([][]cell, len(tools))
				for i, t := range tools {
					rows[i] = []cell{{printable(t.Name), green}, {summary(t.Description), ""}}
				}
				if len(rows) == 0 {
					_, err := fmt.Fprintln(a.err, args[0]+" has no tools")
					return err
				}
				writeTable(a.out, rows, painter(a.out))
				return nil
			})
		},
	})
}

func (a *app) callCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "call NAME TOOL [JSON]",
		Short: "Call a tool of a server",
		Long: `Call a tool of a server, through mcpd's own endpoint, and print the text of its
result. The arguments are a JSON object; - reads it from stdin. Exit code 1 means
that the call failed or that the tool says so. Ctrl-C cancels the call.`,
		Example: `  mcpd call demo echo '{"text":"hello"}'
  mcpd call demo countdown < /dev/null
  mcpd call files read_text_file - < arguments.json`,
		Args:              usage(cobra.RangeArgs(2, 3)),
		ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments := json.RawMessage("{}")
			if len(args) == 3 {
				arguments = json.RawMessage(args[2])
			}
			if string(arguments) == "-" {
				data, err := io.ReadAll(a.in)
				if err != nil {
					return fmt.Errorf("reading the arguments: %w", err)
				}
				arguments = data
			}
			var object map[string]json.RawMessage
			if err := json.Unmarshal(arguments, &object); err != nil || object == nil {
				return usageError{errors.New("the arguments are not a JSON object"), `write them like '{"text":"hello"}'`}
			}
			return a.withServer(cmd, args[0], func(ctx context.Context, c *mcpclient.Client) error {
				return a.call(ctx, c, args[0], args[1], arguments)
			})
		},
	})
}

func (a *app) call(ctx context.Context, c *mcpclient.Client, server, name string, arguments json.RawMessage) error {
	tools, err := c.ListTools(ctx)
	if err != nil {
		return err
	}
	var tool *mcpclient.Tool
	var names []string
	for i := range tools {
		names = append(names, printable(tools[i].Name))
		if tools[i].Name == name {
			tool = &tools[i]
		}
	}
	if tool == nil {
		return hinted{fmt.Errorf("server %q has no tool %q", server, name), "it has: " + strings.Join(names, ", ")}
	}
	var progress mcpclient.Notify
	if isTerminal(a.err) && !a.json {
		progress = a.showProgress
	}
	raw, err := c.CallTool(ctx, *tool, arguments, progress)
	if ctx.Err() != nil {
		return errors.New("the call was cancelled")
	}
	if err != nil {
		return err
	}
	var result struct {
		ResultType string            `json:"resultType"`
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return fmt.Errorf("the result cannot be read: %w", err)
	}
	if a.json {
		if err := a.printJSON(raw); err != nil {
			return err
		}
	} else if err := a.showContent(result.Content, result.Structured); err != nil {
		return err
	}
	switch {
	case result.IsError:
		return fmt.Errorf("tool %q reports an error", name)
	case result.ResultType == "input_required":
		return hinted{fmt.Errorf("tool %q wants to ask something first", name), "call it from a client that can answer"}
	}
	return nil
}

// showContent prints what a tool returned: text as it is, the rest named.
func (a *app) showContent(content []json.RawMessage, structured json.RawMessage) error {
	var b bytes.Buffer
	for _, raw := range content {
		var c struct {
			Type, Text, URI, MimeType, Data string
			Resource                        struct{ URI, Text, MimeType string }
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return fmt.Errorf("the result cannot be read: %w", err)
		}
		switch {
		case c.Type == "text":
			b.WriteString(strings.TrimSuffix(c.Text, "\n") + "\n")
		case c.Type == "resource" && c.Resource.Text != "":
			fmt.Fprintf(&b, "[%s]\n%s\n", c.Resource.URI, strings.TrimSuffix(c.Resource.Text, "\n"))
		case c.Type == "resource":
			fmt.Fprintf(&b, "[%s %s]\n", c.Resource.URI, c.Resource.MimeType)
		case c.Type == "resource_link":
			fmt.Fprintf(&b, "[%s]\n", c.URI)
		default:
			fmt.Fprintf(&b, "[%s %s, %d bytes of base64; see --json]\n", c.Type, c.MimeType, len(c.Data))
		}
	}
	if len(content) == 0 && len(structured) > 0 {
		b.Write(structured)
		b.WriteByte('\n')
	}
	text := b.String()
	if isTerminal(a.out) {
		text = safe(text)
	}
	_, err := io.WriteString(a.out, text)
	return err
}

func (a *app) showProgress(method string, params json.RawMessage) {
	if method != "notifications/progress" {
		return
	}
	var p struct {
		Progress float64
		Total    *float64
		Message  string
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	of := ""
	if p.Total != nil {
		of = fmt.Sprintf("/%v", *p.Total)
	}
	_, _ = fmt.Fprintf(a.err, "%s\n", painter(a.err)(faint, fmt.Sprintf("%v%s %s", p.Progress, of, printable(p.Message))))
}

// summary is the first line of a description, shortened.
func summary(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	r := []rune(printable(first))
	if len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return string(r)
}

// printable makes one line of a server's text.
func printable(s string) string {
	return strings.ReplaceAll(safe(s), "\n", " ")
}

// safe takes out of a server's text what would command the terminal.
func safe(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20, r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return -1
		}
		return r
	}, s)
}
