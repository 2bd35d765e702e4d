package scenario

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// reply is an answer as a client understands it. It is either whole or has a failure.
type reply struct {
	text, reasoning string
	calls           []toolCall
	finish          string
	entries         []string // texts of log-prob entries
	completion      int      // tokens by usage, 0 where there is none
	begun           bool     // a part of the reply had come

	rid     string // of the attempt that answered
	failure string // error_type of a failed one, "" for a whole one
	status  int
	message string
}

type toolCall struct{ name, arguments string }

// choice is what a body and a chunk have in common.
type choice struct {
	Text         string  `json:"text"`
	Message      message `json:"message"`
	Delta        message `json:"delta"`
	FinishReason string  `json:"finish_reason"`
	LogProbs     struct {
		Content []struct {
			Token string `json:"token"`
		} `json:"content"`
	} `json:"logprobs"`
}

type message struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	Calls     []struct {
		Index    int `json:"index"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// piece is a body or the data of one event.
type piece struct {
	Choices []choice `json:"choices"`
	Usage   struct {
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// understand reads an answer. An error is one that no client must ever see: neither a whole reply nor an honest failure.
func understand(a *answer, stream bool) (*reply, error) {
	r := &reply{status: a.status, rid: a.header.Get("X-PD-RID")}
	if a.status != http.StatusOK || !stream {
		return r, r.whole(a)
	}
	events := strings.Split(string(a.body), "\n\n")
	if rest := events[len(events)-1]; rest != "" && a.err == nil {
		return r, fmt.Errorf("a stream that ends well in the middle of an event: %q", rest)
	}
	done := false
	for _, event := range events[:len(events)-1] {
		if done || r.failure != "" {
			return r, fmt.Errorf("an event behind the last one: %q", event)
		}
		kind, data, _ := strings.Cut(event, "data: ")
		if done = data == "[DONE]"; done {
			continue
		}
		var p piece
		if err := json.Unmarshal([]byte(data), &p); err != nil {
			return r, fmt.Errorf("an event that cannot be read: %q", event)
		}
		if (p.Error != nil) != (kind == "event: error\n") {
			return r, fmt.Errorf("an error without its event, or the other way round: %q", event)
		}
		r.add(&p)
	}
	switch {
	case r.failure != "" && a.err == nil:
		return r, fmt.Errorf("a stream that failed and ends well: %s", r.failure)
	case r.failure == "" && !done && a.err == nil:
		return r, fmt.Errorf("a stream that ends well without [DONE]: %q", a.body)
	case done && a.err != nil:
		return r, fmt.Errorf("a stream that breaks off after [DONE]: %w", a.err)
	case r.failure == "" && !done:
		return r, fmt.Errorf("a stream that breaks off without a word: %w", a.err)
	}
	return r, nil
}

// whole reads an answer in one piece.
func (r *reply) whole(a *answer) error {
	var p piece
	if a.err != nil {
		return fmt.Errorf("the answer breaks off: %w", a.err)
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		return fmt.Errorf("%d with a body that cannot be read: %.300q", a.status, a.body)
	}
	if (a.status == http.StatusOK) != (p.Error == nil) || p.Error == nil && len(p.Choices) != 1 {
		return fmt.Errorf("%d with %.300q", a.status, a.body)
	}
	r.add(&p)
	return nil
}

// add takes up a body or a chunk.
func (r *reply) add(p *piece) {
	if p.Error != nil {
		r.failure, r.message = p.Error.Type, p.Error.Message
		return
	}
	r.begun = true
	r.completion = max(r.completion, p.Usage.Completion)
	for _, c := range p.Choices {
		r.text += c.Text
		if c.FinishReason != "" {
			r.finish = c.FinishReason
		}
		for _, e := range c.LogProbs.Content {
			r.entries = append(r.entries, e.Token)
		}
		for _, m := range []message{c.Message, c.Delta} {
			r.text += m.Content
			r.reasoning += m.Reasoning
			for _, call := range m.Calls {
				for len(r.calls) <= call.Index {
					r.calls = append(r.calls, toolCall{})
				}
				r.calls[call.Index].name += call.Function.Name
				r.calls[call.Index].arguments += call.Function.Arguments
			}
		}
	}
}

// readReply reads the answer to a to its end. What no client must see is an error of the test.
func (c *client) readReply(a *ask) *reply { return c.judge(a, c.read()) }

func (c *client) judge(a *ask, got *answer) *reply {
	c.w.t.Helper()
	r, err := understand(got, a.stream)
	if err != nil && err != io.EOF {
		c.w.t.Errorf("%s: %v", a.body, err)
		r.failure = "not to be understood"
	}
	return r
}
