package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pd-router/internal/tilert"

	"github.com/spf13/pflag"
)

// Ways to treat the KV bytes of a request.
const (
	KVWrite   = "write"   // prefill: handshake and all bytes
	KVControl = "control" // prefill: handshake and done, no bytes
	KVCheck   = "check"   // decode: wait for the transfer and check every byte
	KVTrust   = "trust"   // decode: wait for the transfer, do not look at the bytes
	KVNone    = "none"    // both: nothing is sent, nothing is waited for
)

// Ways in which KV bytes move.
const (
	TransportAuto = "auto" // nixl if its library can be used, else tcp
	TransportNIXL = "nixl" // as the real nodes do: into registered memory, by the NIXL library
	TransportTCP  = "tcp"  // the simulators' own: a data port beside the control port
)

// Engines of a decode node.
const (
	EngineText = "text" // says what the prefill node composed
	EngineStub = "stub" // the stub engine of the real node: first token, 11, 22, 33
)

// PrefillOptions describe a prefill node. The zero value is a node that takes no time, on a free port of loopback, with
// the transport tcp; DefaultPrefillOptions are those of the command line.
type PrefillOptions struct {
	// Address host:port to listen on. Port 0 takes any free one.
	Listen string
	// Names of the model. The first is used in replies; a request for a name that is not listed gets 404.
	Models []string
	// Shape of the KV cache: glm5, glm5_2, dsv32, or tiny, a small one for demonstrations.
	Profile string
	// Element type of the KV cache: fp8_ds_mla, bf16 or fp8_rocm.
	KVDType string
	// Generation of the nodes: N (protocol 2) or V5 (protocol 1).
	Generation string
	// Ranks that send KV, 1 to 8. The decode node must expect as many. Generation V5 has one.
	Senders int
	// Longest prompt with its reply, in tokens.
	MaxModelLen int
	// What happens with KV bytes: write sends all of them, control only shakes hands, none does nothing.
	KV string
	// How KV bytes move: nixl, tcp (a port of the simulators' own), or auto: nixl if its library is found (PD_ROUTER_NIXL_LIBRARY names it), and tcp for nodes that have no other.
	Transport string
	// Begin to send when the last chunk of the prompt is computed, layer by layer, and not after the reply.
	Pipeline bool
	// Prompt tokens computed a second, for all requests together. 0 takes no time.
	TokensPerSecond float64
	// Time that every request takes besides.
	Latency time.Duration
	// Share of each prompt that counts as cached, 0 to 1. Below 0 it is the longest prefix that an earlier prompt had too.
	CachedShare float64
	// Gigabytes of KV that leave the node a second, for one request. 0 is as fast as the machine.
	TransferGBps float64
	// Part by which all times vary at random, 0 to 1.
	Jitter float64
	// Begin replies with a line of reasoning and </think>, unless the request turns thinking off.
	Thinking bool
	// Misbehave: kind=share or kind=1/n for every nth request, may be repeated. Kinds: refuse, reset, hang, truncate, garbage, slow; of the KV bytes kv-flip, kv-rid, kv-offset, kv-size, kv-short, kv-lost, kv-none.
	Faults []string
}

// DefaultPrefillOptions are the defaults of the command line.
func DefaultPrefillOptions() PrefillOptions {
	return PrefillOptions{
		Listen: "127.0.0.1:8000", Models: []string{"glm5"}, Profile: "glm5", KVDType: "fp8_ds_mla", Generation: "N", Senders: tilert.DefaultSenders,
		MaxModelLen: 202752, KV: KVWrite, Transport: TransportAuto, Pipeline: true, TokensPerSecond: 30000, Latency: 20 * time.Millisecond, CachedShare: -1,
	}
}

// AddFlags declares a flag for each field, with the field's present value as default.
func (o *PrefillOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Listen, "listen", o.Listen, "Address host:port to listen on. Port 0 takes any free one.")
	fs.StringSliceVar(&o.Models, "served-model-name", o.Models, "Names of the model. The first is used in replies; a request for a name that is not listed gets 404.")
	fs.StringVar(&o.Profile, "model", o.Profile, "Shape of the KV cache: glm5, glm5_2, dsv32, or tiny, a small one for demonstrations.")
	fs.StringVar(&o.KVDType, "kv-cache-dtype", o.KVDType, "Element type of the KV cache: fp8_ds_mla, bf16 or fp8_rocm.")
	fs.StringVar(&o.Generation, "generation", o.Generation, "Generation of the nodes: N (protocol 2) or V5 (protocol 1).")
	fs.IntVar(&o.Senders, "senders", o.Senders, "Ranks that send KV, 1 to 8. The decode node must expect as many. Generation V5 has one.")
	fs.IntVar(&o.MaxModelLen, "max-model-len", o.MaxModelLen, "Longest prompt with its reply, in tokens.")
	fs.StringVar(&o.KV, "kv", o.KV, "What happens with KV bytes: write sends all of them, control only shakes hands, none does nothing.")
	fs.StringVar(&o.Transport, "transport", o.Transport, "How KV bytes move: nixl, tcp (a port of the simulators' own), or auto: nixl if its library is found (PD_ROUTER_NIXL_LIBRARY names it), and tcp for nodes that have no other.")
	fs.BoolVar(&o.Pipeline, "pipeline", o.Pipeline, "Begin to send when the last chunk of the prompt is computed, layer by layer, and not after the reply.")
	fs.Float64Var(&o.TokensPerSecond, "tokens-per-second", o.TokensPerSecond, "Prompt tokens computed a second, for all requests together. 0 takes no time.")
	fs.DurationVar(&o.Latency, "latency", o.Latency, "Time that every request takes besides.")
	fs.Float64Var(&o.CachedShare, "cached-share", o.CachedShare, "Share of each prompt that counts as cached, 0 to 1. Below 0 it is the longest prefix that an earlier prompt had too.")
	fs.Float64Var(&o.TransferGBps, "transfer-gbps", o.TransferGBps, "Gigabytes of KV that leave the node a second, for one request. 0 is as fast as the machine.")
	fs.Float64Var(&o.Jitter, "jitter", o.Jitter, "Part by which all times vary at random, 0 to 1.")
	fs.BoolVar(&o.Thinking, "thinking", o.Thinking, "Begin replies with a line of reasoning and </think>, unless the request turns thinking off.")
	fs.StringSliceVar(&o.Faults, "fault", o.Faults, "Misbehave: kind=share or kind=1/n for every nth request, may be repeated. Kinds: refuse, reset, hang, truncate, garbage, slow; of the KV bytes kv-flip, kv-rid, kv-offset, kv-size, kv-short, kv-lost, kv-none.")
}

// DecodeOptions describe a decode node. The zero value is a node that takes no time, on free ports of loopback, with the
// transport tcp; DefaultDecodeOptions are those of the command line.
type DecodeOptions struct {
	// Address host:port of the HTTP port. Port 0 takes any free one.
	HTTP string
	// Address host:port of the control port. Port 0 takes any free one. With the transport tcp a free port beside it takes the KV bytes.
	Ctrl string
	// Shape of the KV cache: glm5, glm5_2, dsv32, or tiny, a small one for demonstrations.
	Profile string
	// Element type of the KV cache: fp8_ds_mla, bf16 or fp8_rocm.
	KVDType string
	// Generation of the nodes: N (protocol 2) or V5 (protocol 1).
	Generation string
	// Ranks that must send KV, 1 to 8. Generation V5 has one.
	Senders int
	// Pieces that the receive buffer consists of, 1 to 8.
	Shards int
	// Longest prompt that the receive buffer holds, and the window of the engine, in tokens.
	MaxSeqLen int
	// What is done with KV bytes: check waits for them and checks each, trust only waits, none does not wait.
	KV string
	// How KV bytes come: nixl, tcp (a port of the simulators' own), or auto: nixl if its library is found (PD_ROUTER_NIXL_LIBRARY names it), else tcp.
	Transport string
	// Name of the NIXL agent, kept when the node starts again. Empty: a new name for each start.
	AgentName string
	// Engine: text says what the prefill node composed, stub answers first token, 11, 22, 33 and trusts the KV.
	Engine string
	// What the engine claims to support, of penalties, ignore_eos and logprobs.
	Capabilities []string
	// Tokens a second. 0 takes no time.
	TokensPerSecond float64
	// How often a stream is written to. 0 is as the generation does: every 200 ms, V5 every 5 ms.
	Poll time.Duration
	// Write each token on a line of its own as soon as it is there.
	PerToken bool
	// Time that it takes to convert the KV of a request, besides that to check it.
	Convert time.Duration
	// Time that the slot stays taken after the end of a reply.
	Linger time.Duration
	// How often the wait for KV looks for a cancellation.
	CancelPoll time.Duration
	// How long a request that is refused after it took the slot waits for its KV, to let go of it.
	Drain time.Duration
	// How long an unfinished transfer keeps the buffer, and a released rid is refused.
	Age time.Duration
	// Part by which all times vary at random, 0 to 1.
	Jitter float64
	// Misbehave: kind=share or kind=1/n for every nth request, may be repeated. Kinds: refuse, reset, hang, truncate, garbage, slow, busy, error, stall.
	Faults []string
}

// DefaultDecodeOptions are the defaults of the command line.
func DefaultDecodeOptions() DecodeOptions {
	return DecodeOptions{
		HTTP: "127.0.0.1:5557", Ctrl: "127.0.0.1:5556", Profile: "glm5", KVDType: "fp8_ds_mla", Generation: "N", Senders: tilert.DefaultSenders,
		Shards: 1, MaxSeqLen: 202752, KV: KVCheck, Transport: TransportAuto, Engine: EngineText, Capabilities: []string{"ignore_eos", "logprobs", "penalties"},
		TokensPerSecond: 500, CancelPoll: 500 * time.Millisecond, Drain: 30 * time.Second, Age: tilert.TenancyAge,
	}
}

// AddFlags declares a flag for each field, with the field's present value as default.
func (o *DecodeOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.HTTP, "http", o.HTTP, "Address host:port of the HTTP port. Port 0 takes any free one.")
	fs.StringVar(&o.Ctrl, "ctrl", o.Ctrl, "Address host:port of the control port. Port 0 takes any free one. With the transport tcp a free port beside it takes the KV bytes.")
	fs.StringVar(&o.Profile, "model", o.Profile, "Shape of the KV cache: glm5, glm5_2, dsv32, or tiny, a small one for demonstrations.")
	fs.StringVar(&o.KVDType, "kv-cache-dtype", o.KVDType, "Element type of the KV cache: fp8_ds_mla, bf16 or fp8_rocm.")
	fs.StringVar(&o.Generation, "generation", o.Generation, "Generation of the nodes: N (protocol 2) or V5 (protocol 1).")
	fs.IntVar(&o.Senders, "senders", o.Senders, "Ranks that must send KV, 1 to 8. Generation V5 has one.")
	fs.IntVar(&o.Shards, "shards", o.Shards, "Pieces that the receive buffer consists of, 1 to 8.")
	fs.IntVar(&o.MaxSeqLen, "max-seq-len", o.MaxSeqLen, "Longest prompt that the receive buffer holds, and the window of the engine, in tokens.")
	fs.StringVar(&o.KV, "kv", o.KV, "What is done with KV bytes: check waits for them and checks each, trust only waits, none does not wait.")
	fs.StringVar(&o.Transport, "transport", o.Transport, "How KV bytes come: nixl, tcp (a port of the simulators' own), or auto: nixl if its library is found (PD_ROUTER_NIXL_LIBRARY names it), else tcp.")
	fs.StringVar(&o.AgentName, "agent-name", o.AgentName, "Name of the NIXL agent, kept when the node starts again. Empty: a new name for each start.")
	fs.StringVar(&o.Engine, "engine", o.Engine, "Engine: text says what the prefill node composed, stub answers first token, 11, 22, 33 and trusts the KV.")
	fs.StringSliceVar(&o.Capabilities, "capabilities", o.Capabilities, "What the engine claims to support, of penalties, ignore_eos and logprobs.")
	fs.Float64Var(&o.TokensPerSecond, "tokens-per-second", o.TokensPerSecond, "Tokens a second. 0 takes no time.")
	fs.DurationVar(&o.Poll, "poll", o.Poll, "How often a stream is written to. 0 is as the generation does: every 200 ms, V5 every 5 ms.")
	fs.BoolVar(&o.PerToken, "per-token", o.PerToken, "Write each token on a line of its own as soon as it is there.")
	fs.DurationVar(&o.Convert, "convert", o.Convert, "Time that it takes to convert the KV of a request, besides that to check it.")
	fs.DurationVar(&o.Linger, "linger", o.Linger, "Time that the slot stays taken after the end of a reply.")
	fs.DurationVar(&o.CancelPoll, "cancel-poll", o.CancelPoll, "How often the wait for KV looks for a cancellation.")
	fs.DurationVar(&o.Drain, "drain", o.Drain, "How long a request that is refused after it took the slot waits for its KV, to let go of it.")
	fs.DurationVar(&o.Age, "age", o.Age, "How long an unfinished transfer keeps the buffer, and a released rid is refused.")
	fs.Float64Var(&o.Jitter, "jitter", o.Jitter, "Part by which all times vary at random, 0 to 1.")
	fs.StringSliceVar(&o.Faults, "fault", o.Faults, "Misbehave: kind=share or kind=1/n for every nth request, may be repeated. Kinds: refuse, reset, hang, truncate, garbage, slow, busy, error, stall.")
}

// withDefaults fills in what the zero value leaves open and checks the rest.
func (o PrefillOptions) withDefaults() (PrefillOptions, error) {
	d := DefaultPrefillOptions()
	fill(&o.Listen, "127.0.0.1:0")
	fill(&o.Profile, d.Profile)
	fill(&o.KVDType, d.KVDType)
	fill(&o.Generation, d.Generation)
	fill(&o.Senders, d.Senders)
	fill(&o.MaxModelLen, d.MaxModelLen)
	fill(&o.KV, d.KV)
	fill(&o.Transport, TransportTCP)
	if len(o.Models) == 0 {
		o.Models = d.Models
	}
	if o.Generation == "V5" {
		o.Senders = 1 // older nodes know of no others
	}
	return o, firstError(
		oneOf("--kv", o.KV, KVWrite, KVControl, KVNone),
		oneOf("--transport", o.Transport, TransportAuto, TransportNIXL, TransportTCP),
		between("--senders", o.Senders, 1, 8),
		between("--jitter", o.Jitter, 0, 1),
	)
}

func (o DecodeOptions) withDefaults() (DecodeOptions, error) {
	d := DefaultDecodeOptions()
	fill(&o.HTTP, "127.0.0.1:0")
	fill(&o.Ctrl, "127.0.0.1:0")
	fill(&o.Profile, d.Profile)
	fill(&o.KVDType, d.KVDType)
	fill(&o.Generation, d.Generation)
	fill(&o.Senders, d.Senders)
	fill(&o.Shards, d.Shards)
	fill(&o.MaxSeqLen, d.MaxSeqLen)
	fill(&o.KV, d.KV)
	fill(&o.Transport, TransportTCP)
	fill(&o.Engine, d.Engine)
	fill(&o.CancelPoll, d.CancelPoll)
	fill(&o.Drain, d.Drain)
	fill(&o.Age, d.Age)
	if o.Capabilities == nil {
		o.Capabilities = d.Capabilities
	}
	if o.Engine == EngineStub && o.KV == KVCheck {
		o.KV = KVTrust
	}
	if o.KV == KVNone && o.Transport == TransportAuto {
		o.Transport = TransportTCP // no bytes come, so no library is looked for
	}
	if o.Generation == "V5" {
		o.Senders = 1 // older nodes know of no others
		fill(&o.Poll, 5*time.Millisecond)
	}
	fill(&o.Poll, 200*time.Millisecond)
	for _, c := range o.Capabilities {
		if err := oneOf("--capabilities", c, "penalties", "ignore_eos", "logprobs"); err != nil {
			return o, err
		}
	}
	return o, firstError(
		oneOf("--kv", o.KV, KVCheck, KVTrust, KVNone),
		oneOf("--transport", o.Transport, TransportAuto, TransportNIXL, TransportTCP),
		oneOf("--engine", o.Engine, EngineText, EngineStub),
		between("--senders", o.Senders, 1, 8),
		between("--shards", o.Shards, 1, 8),
		between("--max-seq-len", o.MaxSeqLen, 1, 1<<24),
		between("--jitter", o.Jitter, 0, 1),
	)
}

// fill sets what is zero.
func fill[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s=%s: want %s", flag, value, strings.Join(allowed, ", "))
}

func between[T int | float64](flag string, value, low, high T) error {
	if value >= low && value <= high {
		return nil
	}
	return fmt.Errorf("%s=%v: want %v to %v", flag, value, low, high)
}
