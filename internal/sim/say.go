package sim

import (
	"encoding/json"
	"strings"
)

// sayMark in the last message makes the rest of that message the reply.
const sayMark = "say:"

const (
	echoWords = 48 // of the prompt that come back
	closing   = "That is all I know about it, as I am only the simulator of a model."
	thoughts  = "The user wants an answer, so I think about it for a while and then I give one."
)

// compose returns what the model answers: the text behind "say:", a call of the first tool, or the prompt's own last
// words. room bounds its length in bytes.
func compose(p *prompt, thinking bool, room int) string {
	text := p.text
	var say string
	switch after, marked := behindMark(text); {
	case marked:
		return clip(after, room)
	case p.tool != nil:
		say = toolCall(p.tool, text)
	default:
		say = echo(text)
	}
	if thinking && !p.noThinking {
		say = thoughts + "</think>" + say
	}
	return clip(say, room)
}

// behindMark returns what follows the first mark that begins a word: an essay: is none.
func behindMark(text string) (after string, ok bool) {
	for from := 0; ; {
		i := strings.Index(text[from:], sayMark)
		if i < 0 {
			return "", false
		}
		at := from + i
		if from = at + len(sayMark); at == 0 || text[at-1] == ' ' || text[at-1] == '\n' {
			return text[from:], true
		}
	}
}

func echo(text string) string {
	words := strings.Fields(text)
	words = words[max(0, len(words)-echoWords):]
	if len(words) == 0 {
		return "You said nothing. " + closing
	}
	return "You said: " + strings.Join(words, " ") + "\n" + closing
}

// clip cuts a text that is too long between two characters.
func clip(s string, room int) string {
	if len(s) <= room {
		return s
	}
	return strings.ToValidUTF8(s[:max(room, 0)], "")
}

// tool is one entry of the request's tools.
type tool struct {
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// pickTool returns the tool that the model calls: the one that tool_choice names, else the first. None is called if
// tool_choice is none.
func pickTool(tools, choice json.RawMessage) *tool {
	var list []tool
	if len(tools) == 0 || json.Unmarshal(tools, &list) != nil || len(list) == 0 {
		return nil
	}
	var named tool
	switch {
	case string(choice) == `"none"`:
		return nil
	case len(choice) > 0 && json.Unmarshal(choice, &named) == nil:
		for i := range list {
			if list[i].Function.Name == named.Function.Name {
				return &list[i]
			}
		}
	}
	return &list[0]
}

// toolCall writes a call in GLM-4.7's grammar, with arguments that fit the tool's schema. Text goes into it as it is,
// any other value as JSON.
func toolCall(t *tool, text string) string {
	var b strings.Builder
	b.WriteString("<tool_call>" + t.Function.Name)
	s := parseSchema(t.Function.Parameters)
	for _, name := range s.names() {
		v := s.property(name).example(lastWord(text))
		word, isText := v.(string)
		if !isText {
			raw, _ := json.Marshal(v) // made of plain values
			word = string(raw)
		}
		b.WriteString("<arg_key>" + name + "</arg_key><arg_value>" + word + "</arg_value>")
	}
	b.WriteString("</tool_call>")
	return b.String()
}

// lastWord of a prompt is the value of text arguments.
func lastWord(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || strings.ContainsRune(".,;:!?\"'<>", r) })
	if len(words) == 0 {
		return "nothing"
	}
	return words[len(words)-1]
}
