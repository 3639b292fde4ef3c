package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

var summaryStyles = []string{"bullets", "haiku", "one sentence"}

func promptList() []object {
	return []object{{
		"name": "summarize_notes", "title": "Summarize my notes",
		"description": "Asks for a summary of every note.",
		"arguments": []object{{
			"name": "style", "description": "How to write it: " + strings.Join(summaryStyles, ", ") + ".", "required": false,
		}},
	}, {
		"name": "explain_note", "title": "Explain a note",
		"description": "Asks what one note means.",
		"arguments":   []object{{"name": "name", "description": "The name of the note.", "required": true}},
	}}
}

func (s *server) getPrompt(raw json.RawMessage) (object, *rpcError) {
	var params struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := json.Unmarshal(raw, &params); err != nil {
		return nil, invalidParams("prompts/get needs a name, and arguments that are strings")
	}
	switch params.Name {
	case "summarize_notes":
		style := params.Arguments["style"]
		if style == "" {
			style = summaryStyles[0]
		}
		messages := []object{userMessage(textContent("Summarize these notes. Style: " + style + "."))}
		for _, e := range s.notes.entries {
			messages = append(messages, userMessage(embedded(e)))
		}
		return object{"description": "A summary of every note", "messages": messages}, nil
	case "explain_note":
		e, found := s.notes.find(params.Arguments["name"])
		if !found {
			return nil, invalidParams(fmt.Sprintf("there is no note %q", params.Arguments["name"]))
		}
		return object{"description": "What one note means", "messages": []object{
			userMessage(textContent("What does this note mean?")), userMessage(embedded(e)),
		}}, nil
	default:
		return nil, invalidParams(fmt.Sprintf("unknown prompt %q", params.Name))
	}
}

func userMessage(content object) object { return object{"role": "user", "content": content} }

func embedded(e note) object {
	return object{"type": "resource", "resource": contents(noteURI(e.name), e.text)}
}

// complete offers the values of a prompt's argument or of the template's variable that begin with what was typed.
func (s *server) complete(raw json.RawMessage) (object, *rpcError) {
	var params struct {
		Ref struct {
			Type string `json:"type"`
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"ref"`
		Argument struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"argument"`
	}
	if err := json.Unmarshal(raw, &params); err != nil {
		return nil, invalidParams("completion/complete needs a ref and an argument")
	}
	var names []string
	for _, e := range s.notes.entries {
		names = append(names, e.name)
	}
	var candidates []string
	switch ref := params.Ref; {
	case ref.Type == "ref/prompt" && ref.Name == "summarize_notes" && params.Argument.Name == "style":
		candidates = summaryStyles
	case ref.Type == "ref/prompt" && ref.Name == "explain_note" && params.Argument.Name == "name":
		candidates = names
	case ref.Type == "ref/resource" && ref.URI == notePrefix+"{name}" && params.Argument.Name == "name":
		candidates = names
	default:
		return nil, invalidParams("there is nothing of this name to complete")
	}
	values := []string{}
	for _, candidate := range candidates {
		if strings.HasPrefix(candidate, params.Argument.Value) {
			values = append(values, candidate)
		}
	}
	slices.Sort(values)
	total := len(values)
	values = values[:min(total, 100)] // the most that one answer may hold
	return object{"completion": object{"values": values, "total": total, "hasMore": total > len(values)}}, nil
}
