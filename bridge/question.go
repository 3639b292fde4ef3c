package bridge

import (
	"strconv"
	"time"

	"mcpd/bridge/jsonrpc"
)

// A question is a request of a legacy server to its client. It comes over the
// one pipe that all clients share and does not say for whose request it is
// asked. It is passed on where that is certain, and refused to the server
// where it is not: a question never reaches the wrong client.

// Interactive says what becomes of the questions of a legacy server.
type Interactive string

const (
	// InteractiveAuto passes a question on while only one request is in flight.
	InteractiveAuto Interactive = "auto"
	// InteractiveSerialize has only one request in flight at a time.
	InteractiveSerialize Interactive = "serialize"
	// InteractiveOff declares no capability, so that the server does not ask.
	InteractiveOff Interactive = "off"
)

// Requests of legacy servers that clients answer.
const (
	methodElicit = "elicitation/create"
	methodSample = "sampling/createMessage"
	methodRoots  = "roots/list"
)

func isQuestion(method string) bool {
	return method == methodElicit || method == methodSample || method == methodRoots
}

// mayAsk reports whether the answer to a request may be a question
// (basic/patterns/mrtr, "Supported Requests").
func mayAsk(method string) bool {
	return method == methodToolsCall || method == methodPromptsGet || method == methodResourcesRead
}

// declaredToLegacy are the client capabilities that mcpd declares to a legacy
// server. What a client of them lacks is found out when the server asks.
func declaredToLegacy(i Interactive) string {
	if i == InteractiveOff {
		return `{}`
	}
	return `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}`
}

const (
	// mostQuestions bounds the questions of one process that are open at a time.
	mostQuestions = 64
	// mostAbandoned bounds the requests whose end is waited for after they were given up.
	mostAbandoned = 256
	// abandonedFor is how long a request that was given up is still taken for
	// a possible cause of questions. Servers that keep to the protocol do not
	// answer such a request, so that its end cannot be seen.
	abandonedFor = time.Minute
)

// openQuestion is a question that was passed on and not answered yet.
type openQuestion struct {
	ex     *exchange
	method string
}

// questions is the part of a Conn's state that is about questions. Conn.mu
// guards it.
type questions struct {
	open map[string]openQuestion // by the server's own id, raw JSON
	// abandoned are requests that were given up and may still run, with the time
	// until which that is thought of them.
	abandoned map[uint64]time.Time
}

// receiveQuestion passes a question on to the request that caused it, or
// refuses it to the server. It reports whether it has taken over in.
func (c *Conn) receiveQuestion(in *inbound, method string) (taken bool) {
	id := string(in.msg.ID.Of(in.data))
	c.mu.Lock()
	ex, why := c.askedBy()
	_, again := c.questions.open[id]
	switch {
	case again:
	case why != "":
	case len(c.questions.open) >= mostQuestions:
		why = "there are already " + strconv.Itoa(mostQuestions) + " requests without an answer"
	default:
		if c.questions.open == nil {
			c.questions.open = make(map[string]openQuestion)
		}
		c.questions.open[id] = openQuestion{ex: ex, method: method}
	}
	c.mu.Unlock()
	switch {
	case again:
		c.events.logLine("mcpd: dropped a second " + method + " of the server with the id of an open one: " + clip(id))
		return false
	case why == "":
		if ex.box.put(in) {
			return true
		}
		if !c.forget(id) {
			return false // it was dismissed with its request
		}
		why = "the request that it belongs to has ended"
	}
	c.refuseQuestion([]byte(id), method, why)
	return false
}

// askedBy finds the request that a question belongs to. c.mu is held.
func (c *Conn) askedBy() (ex *exchange, why string) {
	count, now := 0, time.Now()
	for _, p := range c.pending {
		if p.group == nil && !p.own { // mcpd's own requests are for nobody, and need nobody
			ex = p
			count++
		}
	}
	for id, until := range c.questions.abandoned {
		if now.After(until) {
			delete(c.questions.abandoned, id)
		}
	}
	switch abandoned := len(c.questions.abandoned); {
	case count == 0:
		return nil, "no client has a request in flight here"
	case count+abandoned > 1:
		return nil, "it cannot be told which of " + strconv.Itoa(count+abandoned) + " requests it belongs to"
	case ex.asks == nil:
		return nil, "the client whose request is in flight cannot be asked"
	}
	return ex, ""
}

// abandon notes that a request was given up that the server has seen. c.mu is
// held.
func (q *questions) abandon(id uint64) {
	if q.abandoned == nil {
		q.abandoned = make(map[uint64]time.Time)
	}
	if len(q.abandoned) < mostAbandoned {
		q.abandoned[id] = time.Now().Add(abandonedFor)
	}
}

// refuseQuestion tells the server that nobody can be asked.
func (c *Conn) refuseQuestion(id []byte, method, why string) {
	c.events.logLine("mcpd: refused " + method + " of the server: " + why)
	c.write(appendFault(nil, id, faultf(0, CodeNotAsked, "mcpd cannot pass %s on to a client: %s", method, why)))
}

// write queues one line. A Conn that is over takes none.
func (c *Conn) write(message []byte) {
	buf := newBuffer(len(message) + 1)
	buf.b = jsonrpc.AppendLine(buf.b, message)
	if err := c.notify(buf); err != nil {
		c.logger.Debug("an answer to the server could not be sent", "error", err)
	}
}

// forget takes a question out of the open ones; false where it is not open.
func (c *Conn) forget(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.questions.open[id]
	delete(c.questions.open, id)
	return open
}

// isOpen reports whether the server still waits for the answer to a question.
func (c *Conn) isOpen(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.questions.open[id]
	return open
}

// reply gives the server a client's answer, a raw JSON result. It reports false
// where the server does not wait for it any more.
func (c *Conn) reply(id string, result []byte) bool {
	if !c.forget(id) {
		return false
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(b, `,"result":`...)
	b = append(b, result...)
	c.write(append(b, '}'))
	return true
}

// dismiss tells the server that a question gets no answer: the user cancelled,
// for an elicitation; an error for the others, which have no such answer.
func (c *Conn) dismiss(id, method, why string) {
	if !c.forget(id) {
		return
	}
	c.sendDismissal(id, method, why)
}

func (c *Conn) sendDismissal(id, method, why string) {
	if method == methodElicit {
		c.write([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"cancel"}}`))
		return
	}
	c.write(appendFault(nil, []byte(id), faultf(0, CodeNotAsked, "%s was not answered: %s", method, why)))
}

// dismissAll dismisses the open questions of a request that is given up.
func (c *Conn) dismissAll(ex *exchange, why string) {
	c.mu.Lock()
	var ids, methods []string
	for id, q := range c.questions.open {
		if q.ex == ex {
			ids, methods = append(ids, id), append(methods, q.method)
			delete(c.questions.open, id)
		}
	}
	c.mu.Unlock()
	for i, id := range ids {
		c.sendDismissal(id, methods[i], why)
	}
}

// forgetAll forgets the questions of a request that has ended. c.mu is held.
func (q *questions) forgetAll(ex *exchange) {
	for id, open := range q.open {
		if open.ex == ex {
			delete(q.open, id)
		}
	}
}
