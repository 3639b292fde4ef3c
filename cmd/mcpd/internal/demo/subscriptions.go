package demo

import (
	"encoding/json"
	"slices"
	"strings"
)

// listener is one open subscriptions/listen request with what was granted to it.
type listener struct {
	call                 *call
	resourcesListChanged bool
	uris                 []string
}

// listen opens a subscription. Tools and prompts never change here, so of the list changes only that of resources is
// granted; of the URIs those of notes, whether the note exists yet or not.
func (s *server) listen(c *call, raw json.RawMessage) *rpcError {
	var params struct {
		Notifications *struct {
			ResourcesListChanged  bool     `json:"resourcesListChanged"`
			ResourceSubscriptions []string `json:"resourceSubscriptions"`
		} `json:"notifications"`
	}
	if err := json.Unmarshal(raw, &params); err != nil || params.Notifications == nil {
		return invalidParams("subscriptions/listen needs a notifications filter")
	}
	l := &listener{call: c, resourcesListChanged: params.Notifications.ResourcesListChanged}
	for _, uri := range params.Notifications.ResourceSubscriptions {
		if strings.HasPrefix(uri, notePrefix) && !slices.Contains(l.uris, uri) {
			l.uris = append(l.uris, uri)
		}
	}
	s.listeners = append(s.listeners, l)

	granted := object{}
	if l.resourcesListChanged {
		granted["resourcesListChanged"] = true
	}
	if len(l.uris) > 0 {
		granted["resourceSubscriptions"] = l.uris
	}
	s.notify("notifications/subscriptions/acknowledged", object{"_meta": l.meta(), "notifications": granted})
	return nil
}

func (l *listener) meta() object { return object{metaSubscription: l.call.id} }

// listening says whether a subscription with this id is open.
func (s *server) listening(id string) bool {
	return slices.ContainsFunc(s.listeners, func(l *listener) bool { return string(l.call.id) == id })
}

// noteChanged tells everyone who asked that a note is new, changed or gone, in the order in which they asked, so that
// what this server says is the same each time.
func (s *server) noteChanged(uri string, listChanged bool) {
	for _, l := range s.listeners {
		if listChanged && l.resourcesListChanged {
			s.notify("notifications/resources/list_changed", object{"_meta": l.meta()})
		}
		if slices.Contains(l.uris, uri) {
			s.notify("notifications/resources/updated", object{"_meta": l.meta(), "uri": uri})
		}
	}
	if !s.initialized {
		return
	}
	if listChanged {
		s.notify("notifications/resources/list_changed", nil)
	}
	if slices.Contains(s.watched, uri) {
		s.notify("notifications/resources/updated", object{"uri": uri})
	}
}

// endSubscriptions gives every open listen request its result: the sign of an orderly end.
func (s *server) endSubscriptions() {
	for _, l := range s.listeners {
		s.reply(l.call, object{"_meta": l.meta()})
	}
	s.listeners = nil
}
