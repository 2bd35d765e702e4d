package openai

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// invalid is 400 invalid_parameter about a field of the request.
func invalid(field string, raw []byte, want string) *Error {
	return invalidAs(TypeInvalidParameter, field, raw, want)
}

func invalidAs(errorType, field string, raw []byte, want string) *Error {
	return Errorf(errorType, "%s=%s: want %s", field, clip(raw), want).About(field)
}

// unavailable is 501 capability_unavailable about a field of the request.
func unavailable(field string, raw []byte, why string) *Error {
	return Errorf(TypeCapabilityUnavailable, "%s=%s cannot be served: %s", field, clip(raw), why).About(field)
}

const noTokenizer = "the router has no tokenizer (start it with --model-path)"

// clip is a raw value as it appears in messages: not all of a long one.
func clip(raw []byte) string {
	const most = 40
	if len(raw) <= most {
		return string(raw)
	}
	end := most
	for end > 0 && !utf8.RuneStart(raw[end]) {
		end--
	}
	return string(raw[:end]) + "…"
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// lengths resolves the completion budget (spec 4.4): max_completion_tokens outranks max_tokens; both must be integers, and the one
// that counts 1 or more. No window is as large as 2^31, so that is where MaxTokens ends.
func (c *checking) lengths() *Error {
	for _, f := range [...]struct {
		id   fieldID
		name string
	}{{fieldMaxTokens, "max_tokens"}, {fieldMaxCompletionTokens, "max_completion_tokens"}} {
		raw := c.get(f.id)
		if raw == nil {
			continue
		}
		n, ok := laxInt(raw)
		if !ok {
			return invalid(f.name, raw, "an integer")
		}
		if n < 1 && (f.id == fieldMaxCompletionTokens || c.get(fieldMaxCompletionTokens) == nil) {
			return invalid(f.name, raw, "1 or more")
		}
		c.MaxTokens = int(min(n, math.MaxInt32))
	}
	return nil
}

// Log-probs are not served for temperatures from tooCold to below warmEnough: below tooCold sampling is greedy, and between the two
// nodes cannot give them.
const (
	tooCold    = 1e-5
	warmEnough = 0.2
)

// logprobs resolves logprobs and top_logprobs. The temperature that counts is the one that both legs will get.
func (c *checking) logprobs() *Error {
	raw := c.get(fieldLogprobs)
	if c.Endpoint == Completions {
		if raw != nil {
			return invalidAs(TypeInvalidLogprobs, "logprobs", raw, "none: log-probs are served on /v1/chat/completions")
		}
		return nil
	}
	if raw != nil {
		var ok bool
		if c.LogProbs, ok = strictBool(raw); !ok {
			return invalidAs(TypeInvalidLogprobs, "logprobs", raw, "true or false")
		}
	}
	if top := c.get(fieldTopLogprobs); top != nil {
		n, ok := strictInt(top)
		if !ok || n < 0 || n > MaxTopLogProbs {
			return invalidAs(TypeInvalidLogprobs, "top_logprobs", top, fmt.Sprintf("an integer from 0 to %d", MaxTopLogProbs))
		}
		if n > 0 && !c.LogProbs {
			return invalidAs(TypeInvalidLogprobs, "top_logprobs", top, "logprobs to be true with it")
		}
		c.TopLogProbs = int(n)
	}
	if !c.LogProbs {
		return nil
	}
	if err := c.warmth(); err != nil {
		return err
	}
	if !c.gate.HasTokenizer {
		return unavailable("logprobs", raw, noTokenizer)
	}
	c.need(NeedLogProbs, want{"logprobs", raw, false})
	return nil
}

// warmth refuses the temperatures at which log-probs cannot be had, be they the client's or the deployment's.
func (c *checking) warmth() *Error {
	raw, whose := c.get(fieldTemperature), ""
	if raw == nil {
		raw, whose = c.gate.Defaults.Temperature, ", which is the default of this deployment"
	}
	if len(raw) == 0 {
		return nil
	}
	if _, t, ok := numeric(raw); ok && tooCold <= t && t < warmEnough { // what is no number is refused later
		return Errorf(TypeInvalidLogprobs, "temperature=%s%s: want 0, or %v and more, together with logprobs",
			clip(raw), whose, warmEnough).About("temperature")
	}
	return nil
}

// stops resolves stop and include_stop_str_in_output.
func (c *checking) stops() *Error {
	raw := c.get(fieldStop)
	if raw != nil {
		var why string
		if c.Stops, why = readStops(raw); why != "" {
			return invalid("stop", raw, why)
		}
		if totalLen(c.Stops) > maxStopBytes {
			return invalid("stop", raw, fmt.Sprintf("at most %d bytes of text in all", maxStopBytes))
		}
	}
	if c.has(fieldIncludeStop) { // null is no boolean here, unlike elsewhere
		flag := c.raw(fieldIncludeStop)
		var ok bool
		if c.IncludeStop, ok = laxBool(flag); !ok {
			return invalid("include_stop_str_in_output", flag, "true or false")
		}
	}
	if c.Stops != nil && !c.gate.HasTokenizer {
		return unavailable("stop", raw, noTokenizer)
	}
	return nil
}

// maxStopBytes bounds the stop strings of one request: the matcher's table takes some 30 bytes for each of theirs.
const maxStopBytes = 64 << 10

func totalLen(texts []string) (n int) {
	for _, s := range texts {
		n += len(s)
	}
	return n
}

const wantStops = "a string or a list of strings, none of them empty"

// readStops reads a stop string or a list of them, or says what it wanted. An empty list is none.
func readStops(raw []byte) (stops []string, want string) {
	read := func(raw []byte) bool {
		if kindOf(raw) != kindString {
			want = wantStops
			return false
		}
		s, whole := unquote(raw)
		switch {
		case s == "":
			want = wantStops
		case !whole:
			want = "text: half of a surrogate pair is none"
		}
		stops = append(stops, s)
		return want == ""
	}
	if kindOf(raw) == kindArray {
		eachElement(raw, read)
	} else {
		read(raw)
	}
	return stops, want
}

// template resolves chat_template_kwargs, and what they and the rest say together.
func (c *checking) template() *Error {
	if raw := c.get(fieldTemplateKwargs); raw != nil {
		if kindOf(raw) != kindObject {
			return invalid("chat_template_kwargs", raw, "an object")
		}
		c.TemplateKwargs = raw
	}
	c.EnableThinking = c.thinking()
	if c.LogProbs && c.Stops != nil && c.gate.HasParser {
		return unavailable("logprobs", c.get(fieldLogprobs),
			"together with stop and an output parser (--parser) they cannot be matched to the text that is left")
	}
	return nil
}

func (c *checking) thinking() bool {
	if c.gate.Thinking != nil {
		return c.gate.Thinking(c.TemplateKwargs)
	}
	if c.TemplateKwargs == nil {
		return true
	}
	flag, ok := memberOf(c.TemplateKwargs, "enable_thinking")
	return !ok || !falsy(flag)
}
