package openai

// The checks of single fields, called with values that are there and not null. They may not name other fields' rows: the table
// names them.

func checkTemperature(c *checking, f *Field, raw []byte) *Error {
	number, want := readNonNegative(raw)
	if want != "" {
		return invalid(f.Name, raw, want)
	}
	c.Sampling.Temperature = number
	t, _ := finite(number)
	c.greedy = t < tooCold
	return nil
}

func checkTopP(c *checking, f *Field, raw []byte) *Error {
	number, want := readNonNegative(raw)
	if want != "" {
		return invalid(f.Name, raw, want)
	}
	c.Sampling.TopP = number
	return nil
}

func checkTopK(c *checking, f *Field, raw []byte) *Error {
	number, want := readTopK(raw)
	if want != "" {
		return invalid(f.Name, raw, want)
	}
	c.Sampling.TopK = number
	return nil
}

// checkSeed lets a seed through where nothing is drawn: with the request's own temperature at 0, as evaluation harnesses send it. A
// temperature of 0 that is only the deployment's does not count.
func checkSeed(c *checking, f *Field, raw []byte) *Error {
	if c.greedy {
		return nil
	}
	return unavailable(f.Name, raw, f.Note)
}

// checkOnePrompt refuses lists of several prompts: of a list of strings or of lists of ids. What else a prompt may be is vLLM's.
func checkOnePrompt(_ *checking, f *Field, raw []byte) *Error {
	if kindOf(raw) != kindArray {
		return nil
	}
	prompts := 0
	eachElement(raw, func(element []byte) bool {
		if k := kindOf(element); k != kindString && k != kindArray {
			return false // one prompt, as ids
		}
		prompts++
		return prompts < 2
	})
	if prompts > 1 {
		return unavailable(f.Name, []byte("[…]"), f.Note) // what users wrote stays out of messages, which are logged
	}
	return nil
}

func checkEcho(_ *checking, f *Field, raw []byte) *Error {
	echo, ok := laxBool(raw)
	if !ok {
		return invalid(f.Name, raw, "true or false")
	}
	if echo {
		return unavailable(f.Name, raw, f.Note)
	}
	return nil
}

func checkStream(c *checking, f *Field, raw []byte) *Error {
	var ok bool
	if c.Stream, ok = laxBool(raw); !ok {
		return invalid(f.Name, raw, "true or false")
	}
	if c.Stream && !c.gate.HasTokenizer {
		return unavailable(f.Name, raw, noTokenizer)
	}
	return nil
}

// checkStreamOptions never refuses: what is no object opts in to nothing.
func checkStreamOptions(c *checking, _ *Field, raw []byte) *Error {
	if kindOf(raw) != kindObject {
		return nil
	}
	usage, ok := memberOf(raw, "include_usage")
	c.IncludeUsage = ok && !falsy(usage)
	continuous, ok := memberOf(raw, "continuous_usage_stats")
	c.ContinuousUsage = ok && !falsy(continuous)
	return nil
}

func checkToolChoice(c *checking, f *Field, raw []byte) *Error {
	switch kindOf(raw) {
	case kindObject: // a function by name
		return unavailable(f.Name, raw, f.Note)
	case kindString:
		switch choice, _ := unquote(raw); choice {
		case "none":
			c.ToolChoiceNone = true
			return nil
		case "auto":
			return nil
		case "required":
			return unavailable(f.Name, raw, f.Note)
		}
	}
	return invalid(f.Name, raw, `"none" or "auto"`)
}

func checkParallelToolCalls(c *checking, f *Field, raw []byte) *Error {
	var ok bool
	if c.ParallelCalls, ok = strictBool(raw); !ok {
		return invalid(f.Name, raw, "true or false")
	}
	return nil
}

func checkRepetitionPenalty(c *checking, f *Field, raw []byte) *Error {
	value, ok := strictNumber(raw)
	if !ok {
		return invalid(f.Name, raw, "a finite number")
	}
	c.Sampling.RepetitionPenalty = raw
	if value != 1 {
		c.need(f.Needs, want{f.Name, raw, false})
	}
	return nil
}

func checkPresencePenalty(c *checking, f *Field, raw []byte) *Error {
	value, ok := strictNumber(raw)
	if !ok {
		return invalid(f.Name, raw, "a finite number")
	}
	if value != 0 {
		c.need(f.Needs, want{f.Name, raw, false})
	}
	return nil
}

func checkIgnoreEOS(c *checking, f *Field, raw []byte) *Error {
	value, ok := strictBool(raw)
	if !ok {
		return invalid(f.Name, raw, "true or false")
	}
	if value {
		c.need(f.Needs, want{f.Name, raw, false})
	}
	return nil
}
