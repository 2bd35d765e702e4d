package config

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Config is every setting of the router after validation. The comment of a field is the help of its flag, which has
// the field's name in lower case with hyphens; a test compares the two.
type Config struct {
	// URL of the vLLM prefill node, such as http://10.0.0.1:8000. A path is kept, a slash at the end is not. Required.
	VLLMURL string

	// Decode nodes as host:ctrl_port:http_port, several after one flag or the flag repeated. Each serves one request at a time. Required.
	Decode []Node

	// Look at all nodes before the first 200 on /health, as pd-router probe does, and again every few seconds until nothing fails or --startup-timeout is over.
	Preflight bool

	// Address that the router listens on. 0.0.0.0 is all of the host, of IPv6 too.
	Host string

	// Port that the router listens on. 0 takes any free port, which the log names.
	Port int

	// Address host:port of a second listener for /metrics, /health and /pool_status, which the port of the API serves too. Empty: none.
	MetricsAddr string

	// Serve Go profiles under /debug/pprof/ on the listener of --metrics-addr, never on the port of the API.
	Pprof bool

	// Add the prefill node's metrics page to /metrics, merged by family, for tools that read one page only. Do not scrape vLLM besides, or its counters double.
	ReexportVLLMMetrics bool

	// Largest request body; a longer one gets 413.
	MaxBody int64

	// Folder of the model with tokenizer.json and generation_config.json. Without it replies hold token ids and no text.
	ModelPath string

	// Grammar of reasoning and tool calls in the model's output. All but none need --model-path.
	Parser string

	// Name of the model profile, such as glm5, which says what the decode engine can do.
	Model string

	// Where sampling defaults come from: auto reads generation_config.json in --model-path, vllm takes neutral ones.
	GenerationConfig string

	// Temperature for requests that name none. Unset takes that of --generation-config.
	DefaultTemperature *float64

	// Top-p for requests that name none. Unset takes that of --generation-config.
	DefaultTopP *float64

	// Top-k for requests that name none; 0 is no limit. Unset takes that of --generation-config.
	DefaultTopK *int

	// Repetition penalty for requests that name none. Unset takes that of --generation-config.
	DefaultRepetitionPenalty *float64

	// Completion length in tokens for requests that name none. 0 is all that the context window has left.
	DefaultMaxTokens int

	// Send the usage chunk at the end of every stream, asked for or not.
	ForceIncludeUsage bool

	// Write reasoning text under the name reasoning too, beside reasoning_content.
	ReasoningAlias bool

	// Chat template that vLLM serves with, as a path or literally. Accepted for launchers that pass it; vLLM alone renders prompts.
	ChatTemplate string

	// Template arguments that vLLM adds to every chat request, as a JSON object. Give it the value that vLLM was given, so that the parser knows whether the model thinks.
	DefaultChatTemplateKwargs json.RawMessage

	// How long a request may wait for a decode slot. 0 refuses at once with 429 when none is free.
	QueueTimeout time.Duration

	// How many requests may wait at once; the next one gets 429.
	QueueMax int

	// Prefill the next request in line while a slot still decodes, so that its decode begins when the slot is free. On nodes of control plane protocol 2; others are used as without.
	PrefillAhead bool

	// How many bytes of request bodies may wait at once; a request that would pass it gets 429.
	QueueMaxBytes int64

	// How KV comes to the decode node. direct: prefill writes it there, and the slot is held meanwhile. staged: into memory of the router, where requests wait with their KV ready; needs the NIXL library.
	KVHandoff string

	// How many requests a staged router holds KV for.
	KVArenaSlots int

	// Memory of all slots together, shared equally. Unset: room for the decode nodes' whole window in each. A prompt that no slot has room for goes straight to a decode node.
	KVArenaBytes int64

	// Slots of several sizes instead, as SLOTSxTOKENS with commas, such as 2x202752,8x32768: short prompts then take small ones. With --kv-arena-bytes as a limit.
	KVArenaSizes []ArenaSize

	// Take the memory in huge pages of 2 MiB that the host has reserved (vm.nr_hugepages), and end if there are too few. Without it they are asked for where the kernel has some.
	KVArenaHugepages bool

	// IPv4 address or name at which the prefill node reaches the router's memory. Unset: the address from which the router reaches that node.
	KVArenaHost string

	// Control port of the first slot; the others count up from it. 0 takes any free ports.
	KVArenaPort int

	// Share of requests, 0 to 1, whose KV is summed up when it comes and again when it goes. Costs a pass over its bytes each time.
	KVVerify float64

	// The library libnixl_capi.so or its folder. Unset: the nixl packages of Python, then where the system looks.
	NIXLLibrary string

	// How long prefill and decode nodes may take to answer for the first time; then the router gives up with exit code 1.
	StartupTimeout time.Duration

	// How long running replies may take to end after SIGTERM. 0 cuts them at once.
	DrainTimeout time.Duration

	// How long opening a connection to a node may take.
	ConnectTimeout time.Duration

	// How long the prefill node may take to answer one request.
	PrefillTimeout time.Duration

	// How long a decode node may take from the decode request to its first line. Nodes themselves give up after 120 s.
	KVTimeout time.Duration

	// How long a decode node may be silent in the middle of a reply.
	StreamIdleTimeout time.Duration

	// Form of log lines on stderr.
	LogFormat string

	// Least severe level that is logged.
	LogLevel string

	// How many lines of one kind and level are written each second; further ones are dropped, requests still count in metrics. 0 writes all.
	LogSample int

	// URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318, for traces. Empty: none are made, and the client's trace context goes to vLLM unchanged.
	OTLPEndpoint string

	// File with settings, by its ending yaml, yml, toml or json. Its keys are the flags without dashes in front.
	Config string
}

// Staged says whether the router holds KV itself.
func (c *Config) Staged() bool { return c.KVHandoff == "staged" }

// ArenaSize is a number of slots with the same room.
type ArenaSize struct {
	Slots  int
	Tokens int // room of each
}

func (s ArenaSize) String() string { return fmt.Sprintf("%dx%d", s.Slots, s.Tokens) }

// Node is the address of one decode node.
type Node struct {
	Host string // name or IP address; IPv6 without brackets
	Ctrl int    // port of the control plane, which prefill nodes connect to
	HTTP int    // port of /pd/decode
}

// String is the node as --decode takes it.
func (n Node) String() string {
	return net.JoinHostPort(n.Host, strconv.Itoa(n.Ctrl)) + ":" + strconv.Itoa(n.HTTP)
}

// HTTPAddr is host:port of the node's HTTP server.
func (n Node) HTTPAddr() string { return net.JoinHostPort(n.Host, strconv.Itoa(n.HTTP)) }

// CtrlAddr is host:port of the node's control plane.
func (n Node) CtrlAddr() string { return net.JoinHostPort(n.Host, strconv.Itoa(n.Ctrl)) }

// Addr is host:port that the API listens on.
func (c Config) Addr() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }
