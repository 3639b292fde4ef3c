package bridge

import (
	"slices"
	"time"
)

// Protocol revisions. Modern revisions carry version and capabilities in the
// _meta of every request; legacy ones start with an initialize handshake.
const (
	version20260728 = "2026-07-28"
	version20251125 = "2025-11-25"
)

// modernVersions lists the modern revisions spoken here, newest first.
func modernVersions() []string { return []string{version20260728} }

// legacyVersions lists the legacy revisions spoken here, newest first.
func legacyVersions() []string {
	return []string{version20251125, "2025-06-18", "2025-03-26", "2024-11-05"}
}

func isModernVersion(v string) bool { return slices.Contains(modernVersions(), v) }
func isLegacyVersion(v string) bool { return slices.Contains(legacyVersions(), v) }

// Era tells the two families of protocol revisions apart.
type Era string

// The eras of a server. EraUnknown stands for one that was not probed yet.
const (
	EraUnknown Era = ""
	EraModern  Era = "modern"
	EraLegacy  Era = "legacy"
)

// HTTP header names of the Streamable HTTP transport.
const (
	headerProtocolVersion = "Mcp-Protocol-Version"
	headerMethod          = "Mcp-Method"
	headerName            = "Mcp-Name"
)

// Keys of _meta that the protocol reserves.
const (
	metaPrefix             = "io.modelcontextprotocol/"
	metaProtocolVersion    = metaPrefix + "protocolVersion"
	metaClientCapabilities = metaPrefix + "clientCapabilities"
	metaClientInfo         = metaPrefix + "clientInfo"
	metaLogLevel           = metaPrefix + "logLevel"
	metaSubscriptionID     = metaPrefix + "subscriptionId"
	metaServerInfo         = metaPrefix + "serverInfo"
)

// Methods that mcpd has to know by name. All others are carried as they are.
const (
	methodInitialize            = "initialize"
	methodPing                  = "ping"
	methodDiscover              = "server/discover"
	methodListen                = "subscriptions/listen"
	methodToolsList             = "tools/list"
	methodToolsCall             = "tools/call"
	methodPromptsList           = "prompts/list"
	methodPromptsGet            = "prompts/get"
	methodResourcesList         = "resources/list"
	methodResourceTemplatesList = "resources/templates/list"
	methodResourcesRead         = "resources/read"
	methodResourcesSubscribe    = "resources/subscribe"
	methodResourcesUnsubscribe  = "resources/unsubscribe"
	methodComplete              = "completion/complete"
	methodSetLevel              = "logging/setLevel"

	notifyInitialized      = "notifications/initialized"
	notifyCancelled        = "notifications/cancelled"
	notifyProgress         = "notifications/progress"
	notifyMessage          = "notifications/message"
	notifyAcknowledged     = "notifications/subscriptions/acknowledged"
	notifyToolsChanged     = "notifications/tools/list_changed"
	notifyPromptsChanged   = "notifications/prompts/list_changed"
	notifyResourcesChanged = "notifications/resources/list_changed"
	notifyResourceUpdated  = "notifications/resources/updated"
	notifyRootsChanged     = "notifications/roots/list_changed"
)

// isRead reports whether a request has no effect on the server, so that it
// may be sent once more when its process died before it answered.
func isRead(method string) bool {
	switch method {
	case methodDiscover, methodToolsList, methodPromptsList, methodResourcesList,
		methodResourceTemplatesList, methodResourcesRead, methodPromptsGet, methodComplete:
		return true
	}
	return false
}

// isCacheable reports whether a complete result of the method must carry
// ttlMs and cacheScope (server/utilities/caching).
func isCacheable(method string) bool {
	switch method {
	case methodDiscover, methodToolsList, methodPromptsList, methodResourcesList,
		methodResourceTemplatesList, methodResourcesRead:
		return true
	}
	return false
}

// isRemoved reports whether a method exists only in legacy revisions. Sent
// with modern metadata it is an unknown method, whatever the server is.
func isRemoved(method string) bool {
	switch method {
	case methodInitialize, methodPing, methodSetLevel, methodResourcesSubscribe,
		methodResourcesUnsubscribe, "tasks/list", "tasks/result",
		"elicitation/create", "sampling/createMessage", "roots/list":
		return true
	}
	return false
}

// isServerNotification reports whether only servers send a notification: a
// client that sends one is mistaken.
func isServerNotification(method string) bool {
	switch method {
	case notifyProgress, notifyMessage, notifyAcknowledged, notifyToolsChanged,
		notifyPromptsChanged, notifyResourcesChanged, notifyResourceUpdated:
		return true
	}
	return false
}

// logLevels orders the syslog severities from the most to the least verbose.
func logLevels() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

// logSeverity is the rank of a level, -1 for an unknown one.
func logSeverity(level string) int { return slices.Index(logLevels(), level) }

// Fixed times of the bridge.
const (
	// keepAliveInterval is how often a quiet stream carries a comment, and
	// how long a request stays undecided between JSON and a stream.
	keepAliveInterval = 15 * time.Second
	// eventWriteTimeout bounds one write to a client that does not read.
	eventWriteTimeout = 30 * time.Second
	// bodyReadTimeout bounds how long a client may take to send its body.
	bodyReadTimeout = 60 * time.Second
	// probeTimeout is how long a server may be silent to server/discover
	// before it is also tried with initialize.
	probeTimeout = 10 * time.Second
	// controlTimeout bounds mcpd's own requests to a server.
	controlTimeout = 30 * time.Second
)
