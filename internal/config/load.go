package config

import (
	"errors"
	"strings"
)

// Load settles every setting from its first source that has it (invariant 1) and checks the whole. lookup is
// os.LookupEnv. An error is always an *Error.
func (f *Flags) Load(lookup func(string) (string, bool)) (Config, error) {
	c, err := f.LoadNodes(lookup)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// LoadNodes is Load for a command that works with the nodes alone: settings that contradict each other elsewhere do not matter to it.
func (f *Flags) LoadNodes(lookup func(string) (string, bool)) (Config, error) {
	var c Config
	var stored file
	for i := len(f.values) - 1; i >= 0; i-- { // --config stands last and tells where the others may come from
		v := f.values[i]
		given, source := v.given, ""
		if given == nil {
			given, source = fromEnv(v.field, lookup)
		}
		if given == nil {
			given, source = stored.values[v.field.name], stored.path
		}
		if given == nil && v.field.def != "" {
			given = []string{v.field.def}
		}
		for _, value := range given {
			if value == "" && v.field.def == "" {
				continue // as good as not given: launchers pass on variables that may be empty
			}
			if err := v.field.set(&c, value); err != nil {
				return Config{}, &Error{Setting: assignment(v.field.name, value), Source: source, Text: err.Error()}
			}
		}
		if v.field.name == configFlag && c.Config != "" {
			var err error
			if stored, err = readFile(c.Config); err != nil {
				return Config{}, err
			}
		}
	}
	if err := c.checkNodes(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// fromEnv gives the values of a setting's variable. An empty one counts as not there, as container platforms set it
// for "nothing". Where a Service is called pd-router, Kubernetes sets PD_ROUTER_PORT=tcp://... in every container of
// the namespace: that is not our port.
func fromEnv(f *field, lookup func(string) (string, bool)) (values []string, source string) {
	s, _ := lookup(f.env())
	if s == "" || f.name == "port" && strings.Contains(s, "://") {
		return nil, ""
	}
	if f.many {
		return strings.Fields(s), f.env()
	}
	return []string{s}, f.env()
}

// checkNodes misses the nodes, which have no defaults.
func (c *Config) checkNodes() error {
	switch {
	case c.VLLMURL == "":
		return &Error{Setting: "--vllm-url", Text: "missing; " + errURL.Error()}
	case len(c.Decode) == 0:
		return &Error{Setting: "--decode", Text: "missing; " + errNode.Error()}
	}
	return nil
}

// check looks at what no single value shows.
func (c *Config) check() error {
	switch {
	case c.Parser != "none" && c.ModelPath == "":
		return &Error{Setting: assignment("parser", c.Parser), Text: "needs --model-path, the folder with tokenizer.json; --parser none does without"}
	case c.MaxBody > c.QueueMaxBytes:
		return &Error{Setting: "--max-body", Text: "is more than --queue-max-bytes: such a request could never wait; want at most that"}
	case c.Staged() && c.PrefillAhead:
		return &Error{Setting: "--prefill-ahead", Text: "is for --kv-handoff direct: staged prefills as many ahead as --kv-arena-slots says"}
	case c.Staged() && c.QueueTimeout == 0:
		return &Error{Setting: "--queue-timeout 0", Text: "does not go with --kv-handoff staged, where requests wait with their KV ready"}
	case !c.Staged() && c.ofTheArena() != "":
		return &Error{Setting: c.ofTheArena(), Text: "is for --kv-handoff staged: with direct the router holds no KV"}
	case c.Pprof && c.MetricsAddr == "":
		return &Error{Setting: "--pprof", Text: "wants --metrics-addr, as profiles are never served on the port of the API"}
	}
	return nil
}

// ofTheArena is the first setting that says something about an arena, which only a staged router has; "" when none does. The number
// of its slots does not count, as it has a default other than nothing.
func (c *Config) ofTheArena() string {
	switch {
	case c.KVArenaBytes != 0:
		return "--kv-arena-bytes"
	case len(c.KVArenaSizes) > 0:
		return "--kv-arena-sizes"
	case c.KVArenaHugepages:
		return "--kv-arena-hugepages"
	case c.KVArenaHost != "":
		return "--kv-arena-host"
	case c.KVArenaPort != 0:
		return "--kv-arena-port"
	case c.KVVerify != 0:
		return "--kv-verify"
	}
	return ""
}

var errSingle = errors.New("want one value, not a list or a table")
