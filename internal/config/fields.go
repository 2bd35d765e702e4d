package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// field is one setting: a flag, a key of the config file and a variable of the environment.
type field struct {
	group string // heading in docs/config.md
	name  string // the flag without its dashes
	kind  string // what the value is, in one word, or the words to choose from
	def   string // default as an operator would write it; "" leaves the setting unset
	help  string // meaning, unit, what 0 or nothing does
	many  bool   // several values, each given to set
	set   func(c *Config, value string) error
}

// env is the name of the variable that carries the setting.
func (f *field) env() string {
	return "PD_ROUTER_" + strings.ToUpper(strings.ReplaceAll(f.name, "-", "_"))
}

// fields is the table, in the order of --help and docs/config.md.
var fields = []field{
	{"Nodes", "vllm-url", "url", "", "URL of the vLLM prefill node, such as http://10.0.0.1:8000. A path is kept, a slash at the end is not. Required.", false,
		with(parseURL, func(c *Config) *string { return &c.VLLMURL })},
	{"Nodes", "decode", "node", "", "Decode nodes as host:ctrl_port:http_port, several after one flag or the flag repeated. Each serves one request at a time. Required.", true,
		func(c *Config, v string) (err error) { c.Decode, err = addNode(c.Decode, v); return err }},
	{"Nodes", "preflight", "bool", "false", "Look at all nodes before the first 200 on /health, as pd-router probe does, and again every few seconds until nothing fails or --startup-timeout is over.", false,
		onOff(func(c *Config) *bool { return &c.Preflight })},

	{"Listener", "host", "address", "0.0.0.0", "Address that the router listens on. 0.0.0.0 is all of the host, of IPv6 too.", false,
		with(checkHost, func(c *Config) *string { return &c.Host })},
	{"Listener", "port", "port", "23333", "Port that the router listens on. 0 takes any free port, which the log names.", false,
		whole(0, 65535, func(c *Config) *int { return &c.Port })},
	{"Listener", "metrics-addr", "address", "", "Address host:port of a second listener for /metrics, /health and /pool_status, which the port of the API serves too. Empty: none.", false,
		with(parseAddr, func(c *Config) *string { return &c.MetricsAddr })},
	{"Listener", "pprof", "bool", "false", "Serve Go profiles under /debug/pprof/ on the listener of --metrics-addr, never on the port of the API.", false,
		onOff(func(c *Config) *bool { return &c.Pprof })},
	{"Listener", "reexport-vllm-metrics", "bool", "false", "Add the prefill node's metrics page to /metrics, merged by family, for tools that read one page only. Do not scrape vLLM besides, or its counters double.", false,
		onOff(func(c *Config) *bool { return &c.ReexportVLLMMetrics })},
	{"Listener", "max-body", "size", "64MiB", "Largest request body; a longer one gets 413.", false,
		with(ParseSize, func(c *Config) *int64 { return &c.MaxBody })},

	{"Model", "model-path", "folder", "", "Folder of the model with tokenizer.json and generation_config.json. Without it replies hold token ids and no text.", false,
		with(parseFolder, func(c *Config) *string { return &c.ModelPath })},
	{"Model", "parser", "glm47|dsv32|dsml|none", "glm47", "Grammar of reasoning and tool calls in the model's output. All but none need --model-path.", false,
		choice(func(c *Config) *string { return &c.Parser }, "glm47", "dsv32", "dsml", "none")},
	{"Model", "model", "name", "", "Name of the model profile, such as glm5, which says what the decode engine can do.", false,
		text(func(c *Config) *string { return &c.Model })},
	{"Model", "generation-config", "auto|vllm", "auto", "Where sampling defaults come from: auto reads generation_config.json in --model-path, vllm takes neutral ones.", false,
		choice(func(c *Config) *string { return &c.GenerationConfig }, "auto", "vllm")},
	{"Model", "default-temperature", "number", "", "Temperature for requests that name none. Unset takes that of --generation-config.", false,
		number(0, "want a number, 0 or more", func(c *Config) **float64 { return &c.DefaultTemperature })},
	{"Model", "default-top-p", "number", "", "Top-p for requests that name none. Unset takes that of --generation-config.", false,
		number(0, "want a number, 0 or more", func(c *Config) **float64 { return &c.DefaultTopP })},
	{"Model", "default-top-k", "integer", "", "Top-k for requests that name none; 0 is no limit. Unset takes that of --generation-config.", false,
		func(c *Config, v string) error {
			k := new(int)
			c.DefaultTopK = k
			return whole(-1, math.MaxInt32, func(*Config) *int { return k })(c, v)
		}},
	{"Model", "default-repetition-penalty", "number", "", "Repetition penalty for requests that name none. Unset takes that of --generation-config.", false,
		number(math.SmallestNonzeroFloat64, "want a number above 0", func(c *Config) **float64 { return &c.DefaultRepetitionPenalty })},
	{"Model", "default-max-tokens", "integer", "0", "Completion length in tokens for requests that name none. 0 is all that the context window has left.", false,
		whole(0, math.MaxInt32, func(c *Config) *int { return &c.DefaultMaxTokens })},
	{"Model", "force-include-usage", "bool", "false", "Send the usage chunk at the end of every stream, asked for or not.", false,
		onOff(func(c *Config) *bool { return &c.ForceIncludeUsage })},
	{"Model", "reasoning-alias", "bool", "false", "Write reasoning text under the name reasoning too, beside reasoning_content.", false,
		onOff(func(c *Config) *bool { return &c.ReasoningAlias })},
	{"Model", "chat-template", "text", "", "Chat template that vLLM serves with, as a path or literally. Accepted for launchers that pass it; vLLM alone renders prompts.", false,
		text(func(c *Config) *string { return &c.ChatTemplate })},
	{"Model", "default-chat-template-kwargs", "json", "", "Template arguments that vLLM adds to every chat request, as a JSON object. Give it the value that vLLM was given, so that the parser knows whether the model thinks.", false,
		func(c *Config, v string) (err error) { c.DefaultChatTemplateKwargs, err = parseObject(v); return err }},

	{"Queue", "queue-timeout", "duration", "1800", "How long a request may wait for a decode slot. 0 refuses at once with 429 when none is free.", false,
		with(ParseDuration, func(c *Config) *time.Duration { return &c.QueueTimeout })},
	{"Queue", "queue-max", "integer", "10000", "How many requests may wait at once; the next one gets 429.", false,
		whole(1, math.MaxInt32, func(c *Config) *int { return &c.QueueMax })},
	{"Queue", "prefill-ahead", "bool", "false", "Prefill the next request in line while a slot still decodes, so that its decode begins when the slot is free. On nodes of control plane protocol 2; others are used as without.", false,
		onOff(func(c *Config) *bool { return &c.PrefillAhead })},
	{"Queue", "queue-max-bytes", "size", "4GiB", "How many bytes of request bodies may wait at once; a request that would pass it gets 429.", false,
		with(ParseSize, func(c *Config) *int64 { return &c.QueueMaxBytes })},

	{"KV handoff", "kv-handoff", "direct|staged", "direct", "How KV comes to the decode node. direct: prefill writes it there, and the slot is held meanwhile. staged: into memory of the router, where requests wait with their KV ready; needs the NIXL library.", false,
		choice(func(c *Config) *string { return &c.KVHandoff }, "direct", "staged")},
	{"KV handoff", "kv-arena-slots", "integer", "4", "How many requests a staged router holds KV for.", false,
		whole(1, 1000, func(c *Config) *int { return &c.KVArenaSlots })},
	{"KV handoff", "kv-arena-bytes", "size", "", "Memory of all slots together, shared equally. Unset: room for the decode nodes' whole window in each. A prompt that no slot has room for goes straight to a decode node.", false,
		with(ParseSize, func(c *Config) *int64 { return &c.KVArenaBytes })},
	{"KV handoff", "kv-arena-sizes", "sizes", "", "Slots of several sizes instead, as SLOTSxTOKENS with commas, such as 2x202752,8x32768: short prompts then take small ones. With --kv-arena-bytes as a limit.", false,
		with(parseArenaSizes, func(c *Config) *[]ArenaSize { return &c.KVArenaSizes })},
	{"KV handoff", "kv-arena-hugepages", "bool", "false", "Take the memory in huge pages of 2 MiB that the host has reserved (vm.nr_hugepages), and end if there are too few. Without it they are asked for where the kernel has some.", false,
		onOff(func(c *Config) *bool { return &c.KVArenaHugepages })},
	{"KV handoff", "kv-arena-host", "address", "", "IPv4 address or name at which the prefill node reaches the router's memory. Unset: the address from which the router reaches that node.", false,
		with(checkHost, func(c *Config) *string { return &c.KVArenaHost })},
	{"KV handoff", "kv-arena-port", "port", "0", "Control port of the first slot; the others count up from it. 0 takes any free ports.", false,
		whole(0, 65535, func(c *Config) *int { return &c.KVArenaPort })},
	{"KV handoff", "kv-verify", "number", "0", "Share of requests, 0 to 1, whose KV is summed up when it comes and again when it goes. Costs a pass over its bytes each time.", false,
		with(parseShare, func(c *Config) *float64 { return &c.KVVerify })},
	{"KV handoff", "nixl-library", "file", "", "The library libnixl_capi.so or its folder. Unset: the nixl packages of Python, then where the system looks.", false,
		text(func(c *Config) *string { return &c.NIXLLibrary })},

	{"Times", "startup-timeout", "duration", "3600", "How long prefill and decode nodes may take to answer for the first time; then the router gives up with exit code 1.", false,
		with(positive, func(c *Config) *time.Duration { return &c.StartupTimeout })},
	{"Times", "drain-timeout", "duration", "30", "How long running replies may take to end after SIGTERM. 0 cuts them at once.", false,
		with(ParseDuration, func(c *Config) *time.Duration { return &c.DrainTimeout })},
	{"Times", "connect-timeout", "duration", "5", "How long opening a connection to a node may take.", false,
		with(positive, func(c *Config) *time.Duration { return &c.ConnectTimeout })},
	{"Times", "prefill-timeout", "duration", "3600", "How long the prefill node may take to answer one request.", false,
		with(positive, func(c *Config) *time.Duration { return &c.PrefillTimeout })},
	{"Times", "kv-timeout", "duration", "130", "How long a decode node may take from the decode request to its first line. Nodes themselves give up after 120 s.", false,
		with(positive, func(c *Config) *time.Duration { return &c.KVTimeout })},
	{"Times", "stream-idle-timeout", "duration", "600", "How long a decode node may be silent in the middle of a reply.", false,
		with(positive, func(c *Config) *time.Duration { return &c.StreamIdleTimeout })},

	{"Logs and file", "log-format", "json|console", "json", "Form of log lines on stderr.", false,
		choice(func(c *Config) *string { return &c.LogFormat }, "json", "console")},
	{"Logs and file", "log-level", "debug|info|warn|error", "info", "Least severe level that is logged.", false,
		choice(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
	{"Logs and file", "log-sample", "integer", "0", "How many lines of one kind and level are written each second; further ones are dropped, requests still count in metrics. 0 writes all.", false,
		whole(0, math.MaxInt32, func(c *Config) *int { return &c.LogSample })},
	{"Logs and file", "otlp-endpoint", "url", "", "URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318, for traces. Empty: none are made, and the client's trace context goes to vLLM unchanged.", false,
		with(parseURL, func(c *Config) *string { return &c.OTLPEndpoint })},
	{"Logs and file", configFlag, "file", "", "File with settings, by its ending yaml, yml, toml or json. Its keys are the flags without dashes in front.", false,
		text(func(c *Config) *string { return &c.Config })},
}

// configFlag names the one setting that the file itself cannot hold.
const configFlag = "config"

// with stores what parse made of the value.
func with[T any](parse func(string) (T, error), at func(*Config) *T) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		*at(c), err = parse(v)
		return err
	}
}

func text(at func(*Config) *string) func(*Config, string) error {
	return with(func(v string) (string, error) { return v, nil }, at)
}

func choice(at func(*Config) *string, words ...string) func(*Config, string) error {
	return with(func(v string) (string, error) { return parseChoice(v, words) }, at)
}

func whole(low, high int64, at func(*Config) *int) func(*Config, string) error {
	want := "want a whole number from " + strconv.FormatInt(low, 10) + " to " + strconv.FormatInt(high, 10)
	return with(func(v string) (int, error) {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < low || n > high {
			return 0, errors.New(want)
		}
		return int(n), nil
	}, at)
}

func number(low float64, want string, at func(*Config) **float64) func(*Config, string) error {
	return func(c *Config, v string) error {
		f, err := parseFloat(v, low, math.MaxFloat64, errors.New(want))
		*at(c) = &f
		return err
	}
}

func onOff(at func(*Config) *bool) func(*Config, string) error {
	return with(func(v string) (bool, error) {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return false, errors.New("want true or false")
		}
		return b, nil
	}, at)
}

func positive(v string) (time.Duration, error) {
	d, err := ParseDuration(v)
	if err == nil && d == 0 {
		err = errors.New("want more than 0")
	}
	return d, err
}

func checkHost(v string) (string, error) {
	host, ok := parseHost(v)
	if !ok {
		return "", errors.New("want an IP address or a name, 0.0.0.0 for all")
	}
	return host, nil
}
