package staging

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"

	"go.uber.org/zap"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// Options are fixed for the life of an Arena.
type Options struct {
	// Slots is how many requests the arena holds, all with the same room. With Sizes it stays 0.
	Slots int
	// Bytes is the memory of all slots together. Needed with Slots, which share it equally; with Sizes it is a limit, 0 for none.
	Bytes int64
	// Sizes, when set, makes slots of several sizes, so that a short prompt does not take the room of a long one.
	Sizes []Size
	// MaxSeqLen is the window of the decode nodes in tokens; no slot is larger.
	MaxSeqLen int
	// Layout is that of both nodes; see LayoutOf.
	Layout tilert.Layout
	// Senders is how many ranks the prefill node sends with, 0 is tilert.DefaultSenders. What decode nodes expect need not be the same.
	Senders int
	// Host is the address that the prefill node is told and that the control ports are bound to. Senders connect by IPv4 only (spec 2.1).
	Host string
	// CtrlPort is the control port of the first slot; the others count up from it. 0 takes any free ports.
	CtrlPort int
	// HugePages takes memory that the system has reserved in huge pages (nixl.NewHugeMemory), and no other.
	HugePages bool
	// Library is the NIXL library, a file or folder; empty looks for it (nixl.Options).
	Library string
	// Verify is the share of transfers, 0 to 1, whose bytes are summed up when they have come and again when they have been sent, before the
	// node is told: each time a few GB/s.
	Verify float64
	// Log gets what an operator should know; nil is silence.
	Log *zap.Logger
	// Observe, see Hooks.
	Observe Hooks
}

// Size is a number of slots of one size.
type Size struct {
	Slots     int
	MaxSeqLen int // room in tokens
}

// Hooks tell the owner of metrics and of the line what happens. Each may be nil, runs on the goroutine that did it, and must be quick.
type Hooks struct {
	// Transfer is called once for each Receive and each Send.
	Transfer func(Transfer)
	// State is called at each change of a slot's state, in order, under a lock of the slot: it must not call the slot or its KV.
	State func(s *Slot, now State)
}

// Transfer is one hop of one request, at its end.
type Transfer struct {
	Slot        *Slot
	Hop         Hop
	Node        string // out: host:port of the decode node
	Reason      Reason // None: it succeeded
	Bytes       int64  // that were to be moved; 0 when that was not known yet
	Descriptors int    // pieces of them
	Seconds     float64
}

const maxSenders = 64 // far above what there is; bounds what a hello or a setting may claim

// sizes checks the options and returns the room of each slot in tokens.
func (o *Options) sizes() ([]int, error) {
	if o.Senders == 0 {
		o.Senders = tilert.DefaultSenders
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	l := o.Layout
	switch {
	case l.Layers < 1 || l.KVBytes < 1 || l.PEBytes < 1:
		return nil, fmt.Errorf("staging: layout %q has no bytes", l.Profile)
	case o.Senders < 1 || o.Senders > maxSenders:
		return nil, fmt.Errorf("staging: %d senders: want 1 to %d", o.Senders, maxSenders)
	case o.MaxSeqLen < 1:
		return nil, fmt.Errorf("staging: a window of %d tokens: want what the decode nodes have", o.MaxSeqLen)
	case o.Host == "":
		return nil, errors.New("staging: no host: the prefill node must be told where the slots are")
	case math.IsNaN(o.Verify) || o.Verify < 0 || o.Verify > 1:
		return nil, fmt.Errorf("staging: %v of transfers to verify: want 0 to 1", o.Verify)
	}
	kinds, err := o.kinds()
	if err != nil {
		return nil, err
	}
	var all []int
	left := o.Bytes
	for _, k := range kinds {
		if k.Slots < 1 || k.MaxSeqLen < 1 {
			return nil, fmt.Errorf("staging: %d slots of %d tokens: want 1 or more of each", k.Slots, k.MaxSeqLen)
		}
		tokens := min(k.MaxSeqLen, o.MaxSeqLen)
		need := o.memoryOf(tokens)
		if o.Bytes > 0 && int64(k.Slots) > left/need {
			return nil, fmt.Errorf("staging: the slots do not fit into %d bytes: one of %d tokens takes %d", o.Bytes, tokens, need)
		}
		left -= int64(k.Slots) * need
		all = append(all, slices.Repeat([]int{tokens}, k.Slots)...)
	}
	if o.CtrlPort != 0 && (o.CtrlPort < 1 || o.CtrlPort+len(all)-1 > 65535) {
		return nil, fmt.Errorf("staging: %d control ports from %d on: want them within 1 to 65535", len(all), o.CtrlPort)
	}
	return all, nil
}

// kinds are the sizes, or the one that comes of equal shares: whole pages of the index plane, at most the window.
func (o *Options) kinds() ([]Size, error) {
	switch {
	case len(o.Sizes) > 0 && o.Slots != 0:
		return nil, fmt.Errorf("staging: %d slots and slots of several sizes: want one of the two", o.Slots)
	case len(o.Sizes) > 0:
		return o.Sizes, nil
	case o.Slots < 1:
		return nil, fmt.Errorf("staging: %d slots: want 1 or more", o.Slots)
	}
	share := o.Bytes / int64(o.Slots)
	page := o.Layout.Bytes(tilert.PageTokens)
	tokens := share / page * tilert.PageTokens
	if tokens > 0 && o.memoryOf(int(min(tokens, math.MaxInt32))) > share {
		tokens -= tilert.PageTokens // rounding up to pages of memory took the rest
	}
	if tokens < 1 {
		return nil, fmt.Errorf("staging: %d bytes for %d slots: one needs %d for every %d tokens", o.Bytes, o.Slots, page, tilert.PageTokens)
	}
	return []Size{{Slots: o.Slots, MaxSeqLen: int(min(tokens, int64(o.MaxSeqLen)))}}, nil
}

// memoryOf is what a slot of so many tokens takes, in whole pages of memory.
func (o *Options) memoryOf(tokens int) int64 {
	page := int64(os.Getpagesize())
	if o.HugePages {
		page = nixl.HugePage
	}
	return (o.Layout.Bytes(tokens) + page - 1) / page * page
}

// Target is the control port of a decode node.
type Target struct {
	Host string // without brackets
	Port int
}

func (t Target) String() string { return net.JoinHostPort(t.Host, fmt.Sprint(t.Port)) }
