package openai

// Rule is what the router does with a field.
type Rule uint8

const (
	PassedThrough Rule = iota // it reaches the prefill node as the client wrote it
	Honoured                  // the router reads it and the request is served accordingly
	NeutralOnly               // the nodes cannot do it: only values that ask for nothing are served
	RouterOwned               // the router sets it for itself; the client's value is dropped, not refused
	NumRules
)

var ruleNames = [NumRules]string{"passed through", "honoured", "only neutral", "router-owned"}

// String is the rule as the compatibility table has it.
func (r Rule) String() string { return ruleNames[r] }

// Endpoints is a set of endpoints. On others a field is passed through unread.
type Endpoints uint8

// The sets that occur.
const (
	OnChat        Endpoints = 1 << Chat
	OnCompletions Endpoints = 1 << Completions
	OnBoth                  = OnChat | OnCompletions
)

// Field is one row of the gate's table.
type Field struct {
	Name      string
	Endpoints Endpoints
	Rule      Rule
	Serves    string // which values are served, besides null and absence
	Else      string // the error types of other values
	Needs     Needs  // what the decode nodes must have for values that ask for something
	Note      string // why, or what it means

	// check looks at a value that is there and not null, in the gate's last step; nil: an earlier step does, or nobody.
	check checkFunc
}

type checkFunc func(c *checking, f *Field, raw []byte) *Error

// fieldID is an index into fields. Its order is that of the gate.
type fieldID uint8

const (
	// What earlier steps of the gate look at, or nobody.
	fieldModel fieldID = iota
	fieldMessages
	fieldResponseFormat
	fieldRegex
	fieldEBNF
	fieldMaxCompletionTokens
	fieldMaxTokens
	fieldLogprobs
	fieldTopLogprobs
	fieldStop
	fieldIncludeStop
	fieldTemplateKwargs
	fieldTools
	// Typed.
	fieldTemperature
	fieldTopP
	fieldTopK
	// Only neutral.
	fieldStopTokenIDs
	fieldMinTokens
	fieldFrequencyPenalty
	fieldMinP
	fieldSeed
	fieldLogitBias
	fieldBadWords
	fieldAllowedTokenIDs
	fieldStructuredOutputs
	fieldN
	fieldBestOf
	fieldUseBeamSearch
	fieldPromptLogprobs
	fieldLogprobTokenIDs
	fieldSkipSpecialTokens
	// Only neutral, and the incumbent lets them through.
	fieldPrompt
	fieldEcho
	fieldGuidedJSON
	fieldGuidedRegex
	fieldGuidedChoice
	fieldGuidedGrammar
	fieldLogitsProcessors
	// How the reply is given.
	fieldStream
	fieldStreamOptions
	fieldToolChoice
	fieldParallelToolCalls
	// What needs a capability.
	fieldRepetitionPenalty
	fieldPresencePenalty
	fieldIgnoreEOS
	// Router-owned.
	fieldKVTransferParams
	fieldRequestID
	fieldReturnTokenIDs

	numFields
)

var _ [64 - numFields]struct{} // sets of fields are one word

const (
	else400     = TypeInvalidParameter
	else501     = TypeCapabilityUnavailable
	else400or1  = TypeInvalidParameter + ", " + TypeCapabilityUnavailable
	noSuchThing = "the decode engine has no such thing"
	constrains1 = "it would bind the first token alone, which the prefill node samples; use response_format, regex or ebnf"
)

var fields = [numFields]Field{
	fieldModel:    {Name: "model", Endpoints: OnBoth, Serves: "anything", Note: "vLLM answers for unknown models"},
	fieldMessages: {Name: "messages", Endpoints: OnChat, Serves: "anything", Note: "checked by vLLM"},
	fieldResponseFormat: {Name: "response_format", Endpoints: OnBoth, Rule: Honoured, Needs: NeedGrammar, Else: TypeInvalidGrammar,
		Serves: "objects of type json_object, json_schema (with json_schema.schema), structural_tag; other types constrain nothing",
		Note:   "at most 64 levels, 1,000 objects, 10,000 enum values; json_object outranks all, structural_tag nothing"},
	fieldRegex: {Name: "regex", Endpoints: OnBoth, Rule: Honoured, Needs: NeedGrammar, Else: TypeInvalidGrammar, Serves: "strings",
		Note: "outranked by json_schema"},
	fieldEBNF: {Name: "ebnf", Endpoints: OnBoth, Rule: Honoured, Needs: NeedGrammar, Else: TypeInvalidGrammar, Serves: "strings",
		Note: "outranked by json_schema and regex"},
	fieldMaxCompletionTokens: {Name: "max_completion_tokens", Endpoints: OnBoth, Rule: Honoured, Else: else400,
		Serves: "integers from 1, also as 20.0, \"20\", true", Note: "outranks max_tokens"},
	fieldMaxTokens: {Name: "max_tokens", Endpoints: OnBoth, Rule: Honoured, Else: else400,
		Serves: "integers from 1, also as 20.0, \"20\", true", Note: "its type is checked even when it is outranked"},
	fieldLogprobs: {Name: "logprobs", Endpoints: OnBoth, Rule: Honoured, Needs: NeedLogProbs,
		Else: TypeInvalidLogprobs + ", " + TypeCapabilityUnavailable, Serves: "chat: true, false; completions: none",
		Note: "needs a tokenizer, and a temperature of 0 or from 0.2; not with stop and a parser together"},
	fieldTopLogprobs: {Name: "top_logprobs", Endpoints: OnChat, Rule: Honoured, Else: TypeInvalidLogprobs,
		Serves: "integers from 0 to 5", Note: "above 0 only with logprobs"},
	fieldStop: {Name: "stop", Endpoints: OnBoth, Rule: Honoured, Else: else400or1,
		Serves: "a string or a list of any length, none empty", Note: "matched by the router, so it needs a tokenizer"},
	fieldIncludeStop: {Name: "include_stop_str_in_output", Endpoints: OnBoth, Rule: Honoured, Else: else400,
		Serves: "booleans, also as 1, 0, \"yes\", \"off\" and the like", Note: "null is refused; without stop it does nothing"},
	fieldTemplateKwargs: {Name: "chat_template_kwargs", Endpoints: OnChat, Rule: Honoured, Else: else400, Serves: "objects",
		Note: "also reaches vLLM; tells the parser whether the model thinks"},
	fieldTools: {Name: "tools", Endpoints: OnChat, Rule: Honoured, Serves: "anything",
		Note: "also reaches vLLM, which checks it; types the arguments of parsed calls"},

	fieldTemperature: {Name: "temperature", Endpoints: OnBoth, Rule: Honoured, Else: else400,
		Serves: "finite numbers from 0, also as strings", check: checkTemperature},
	fieldTopP: {Name: "top_p", Endpoints: OnBoth, Rule: Honoured, Else: else400,
		Serves: "finite numbers from 0, also as strings", check: checkTopP},
	fieldTopK: {Name: "top_k", Endpoints: OnBoth, Rule: Honoured, Else: else400,
		Serves: "integers of 32 bits, also as 20.0, \"20\", \"20.0\"", Note: "0 and -1: no cut", check: checkTopK},

	fieldStopTokenIDs: onlyEmpty("stop_token_ids", noSuchThing+"; use stop"),
	fieldMinTokens:    onlyInt("min_tokens", 0, 0, noSuchThing),
	fieldFrequencyPenalty: {Name: "frequency_penalty", Endpoints: OnBoth, Rule: NeutralOnly, Serves: "0", Else: else400or1,
		Note: noSuchThing, check: checkOnlyZero},
	fieldMinP: {Name: "min_p", Endpoints: OnBoth, Rule: NeutralOnly, Serves: "0", Else: else400or1,
		Note: noSuchThing + "; both legs get 0.0", check: checkOnlyZero},
	fieldSeed: {Name: "seed", Endpoints: OnBoth, Rule: NeutralOnly, Else: else501,
		Serves: "anything when the request's own temperature is below 1e-5",
		Note:   "the decode engine draws from its own state", check: checkSeed},
	fieldLogitBias:         onlyEmpty("logit_bias", noSuchThing),
	fieldBadWords:          onlyEmpty("bad_words", noSuchThing),
	fieldAllowedTokenIDs:   onlyEmpty("allowed_token_ids", noSuchThing),
	fieldStructuredOutputs: onlyEmpty("structured_outputs", constrains1),
	fieldN:                 onlyInt("n", 1, 1, "a slot decodes one sequence; send several requests"),
	fieldBestOf:            onlyInt("best_of", 1, 1, "a slot decodes one sequence"),
	fieldUseBeamSearch:     onlyBool("use_beam_search", false, noSuchThing),
	fieldPromptLogprobs:    onlyNull("prompt_logprobs", "the prompt's log-probs do not reach the reply"),
	fieldLogprobTokenIDs:   onlyEmpty("logprob_token_ids", noSuchThing),
	fieldSkipSpecialTokens: onlyBool("skip_special_tokens", true, "special tokens are the output parser's"),

	fieldPrompt: {Name: "prompt", Endpoints: OnCompletions, Serves: "anything but several prompts", Else: else501,
		Note: "a slot decodes one sequence; send several requests", check: checkOnePrompt},
	fieldEcho: {Name: "echo", Endpoints: OnBoth, Rule: NeutralOnly, Serves: "false, also as 0, \"no\" and the like", Else: else400or1,
		Note: "the first token would be taken from the prompt", check: checkEcho},
	fieldGuidedJSON:       onlyEmpty("guided_json", constrains1),
	fieldGuidedRegex:      onlyEmpty("guided_regex", constrains1),
	fieldGuidedChoice:     onlyEmpty("guided_choice", constrains1),
	fieldGuidedGrammar:    onlyEmpty("guided_grammar", constrains1),
	fieldLogitsProcessors: onlyEmpty("logits_processors", "they would work on the first token alone"),

	fieldStream: {Name: "stream", Endpoints: OnBoth, Rule: Honoured, Else: else400or1,
		Serves: "booleans, also as 1, 0, \"yes\", \"off\" and the like", Note: "true needs a tokenizer", check: checkStream},
	fieldStreamOptions: {Name: "stream_options", Endpoints: OnBoth, Rule: Honoured, check: checkStreamOptions,
		Serves: "anything; an object's include_usage and continuous_usage_stats count when they are truthy"},
	fieldToolChoice: {Name: "tool_choice", Endpoints: OnChat, Rule: Honoured, Else: else400or1, Serves: "\"none\", \"auto\"",
		Note:  "a forced call would bind the first token alone, which the prefill node samples; use \"auto\"",
		check: checkToolChoice},
	fieldParallelToolCalls: {Name: "parallel_tool_calls", Endpoints: OnChat, Rule: Honoured, Else: else400, Serves: "true, false",
		Note: "false: the first call only", check: checkParallelToolCalls},

	fieldRepetitionPenalty: {Name: "repetition_penalty", Endpoints: OnBoth, Rule: Honoured, Needs: NeedPenalties, Else: else400or1,
		Serves: "finite numbers", Note: "1 asks for nothing", check: checkRepetitionPenalty},
	fieldPresencePenalty: {Name: "presence_penalty", Endpoints: OnBoth, Rule: Honoured, Needs: NeedPenalties, Else: else400or1,
		Serves: "finite numbers", Note: "0 asks for nothing", check: checkPresencePenalty},
	fieldIgnoreEOS: {Name: "ignore_eos", Endpoints: OnBoth, Rule: Honoured, Needs: NeedIgnoreEOS, Else: else400or1,
		Serves: "true, false", Note: "false asks for nothing", check: checkIgnoreEOS},

	fieldKVTransferParams: {Name: "kv_transfer_params", Endpoints: OnBoth, Rule: RouterOwned,
		Note: "names the decode node for the prefill node"},
	fieldRequestID: {Name: "request_id", Endpoints: OnBoth, Rule: RouterOwned,
		Note: "the id under which both nodes know the request"},
	fieldReturnTokenIDs: {Name: "return_tokens_as_token_ids", Endpoints: OnBoth, Rule: RouterOwned,
		Note: "the router reads the first token's id"},
}

// fieldIDs finds a field by its name.
var fieldIDs = func() map[string]fieldID {
	ids := make(map[string]fieldID, numFields)
	for id := range fields {
		ids[fields[id].Name] = fieldID(id)
	}
	return ids
}()

// checkedFields are those with a check of their own.
var checkedFields = func() (set uint64) {
	for id := range fields {
		if fields[id].check != nil {
			set |= 1 << id
		}
	}
	return set
}()

// Fields are all that the router knows of a request's fields, in the order in which the gate looks at them. Fields that are not
// among them are passed through.
func Fields() []Field {
	out := make([]Field, numFields)
	copy(out, fields[:])
	return out
}

func onlyEmpty(name, why string) Field {
	return Field{Name: name, Endpoints: OnBoth, Rule: NeutralOnly, Serves: "anything empty, 0, false", Else: else501, Note: why,
		check: func(_ *checking, f *Field, raw []byte) *Error {
			if falsy(raw) {
				return nil
			}
			return unavailable(f.Name, raw, f.Note)
		}}
}

func onlyNull(name, why string) Field {
	return Field{Name: name, Endpoints: OnBoth, Rule: NeutralOnly, Serves: "nothing", Else: else501, Note: why,
		check: func(_ *checking, f *Field, raw []byte) *Error { return unavailable(f.Name, raw, f.Note) }}
}

func onlyInt(name string, neutral, least int64, why string) Field {
	served := string(appendInt(nil, neutral))
	return Field{Name: name, Endpoints: OnBoth, Rule: NeutralOnly, Serves: served, Else: else400or1, Note: why,
		check: func(_ *checking, f *Field, raw []byte) *Error {
			n, ok := strictInt(raw)
			if !ok || n < least {
				return invalid(f.Name, raw, "an integer, "+string(appendInt(nil, least))+" or more")
			}
			if n != neutral {
				return unavailable(f.Name, raw, f.Note)
			}
			return nil
		}}
}

func onlyBool(name string, neutral bool, why string) Field {
	served := "false"
	if neutral {
		served = "true"
	}
	return Field{Name: name, Endpoints: OnBoth, Rule: NeutralOnly, Serves: served, Else: else400or1, Note: why,
		check: func(_ *checking, f *Field, raw []byte) *Error {
			value, ok := strictBool(raw)
			if !ok {
				return invalid(f.Name, raw, "true or false")
			}
			if value != neutral {
				return unavailable(f.Name, raw, f.Note)
			}
			return nil
		}}
}

func checkOnlyZero(_ *checking, f *Field, raw []byte) *Error {
	value, ok := strictNumber(raw)
	if !ok {
		return invalid(f.Name, raw, "a finite number")
	}
	if value != 0 {
		return unavailable(f.Name, raw, f.Note)
	}
	return nil
}
