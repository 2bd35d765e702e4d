package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Kinds of misbehaviour. Those before the blank line are known to both nodes.
const (
	faultRefuse   = "refuse"   // an error status: prefill 503, decode 500
	faultReset    = "reset"    // the connection is reset before any answer
	faultHang     = "hang"     // no answer, until the client leaves
	faultTruncate = "truncate" // the answer ends in its middle
	faultGarbage  = "garbage"  // prefill: not HTTP; decode: a line that is no JSON
	faultSlow     = "slow"     // ten times as slow

	faultBusy  = "busy"  // decode: 429 though the slot is free
	faultError = "error" // decode: fails after some tokens
	faultStall = "stall" // decode: says no more after the first token

	kvFlip   = "kv-flip"   // one bit of one byte is wrong
	kvRID    = "kv-rid"    // the bytes are those of another request
	kvOffset = "kv-offset" // one piece goes a row too far
	kvSize   = "kv-size"   // one piece is a row too long
	kvShort  = "kv-short"  // one piece is a row too short
	kvLost   = "kv-lost"   // the last rank dies before it is done
	kvNone   = "kv-none"   // nothing is sent
)

var (
	prefillFaults = []string{faultRefuse, faultReset, faultHang, faultTruncate, faultGarbage, faultSlow, kvFlip, kvRID, kvOffset, kvSize, kvShort, kvLost, kvNone}
	decodeFaults  = []string{faultRefuse, faultReset, faultHang, faultTruncate, faultGarbage, faultSlow, faultBusy, faultError, faultStall}
)

// fault is one --fault.
type fault struct {
	kind  string
	share float64       // of the requests, if every is 0
	every uint64        // each nth request
	seen  atomic.Uint64 // requests so far
}

// faults are all of a node's, in the order in which they were given.
type faults []*fault

func parseFaults(specs, kinds []string) (faults, error) {
	var out faults
	for _, spec := range specs {
		kind, rate, has := strings.Cut(spec, "=")
		f := &fault{kind: kind, share: 1}
		if !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("--fault=%s: want one of %s", spec, strings.Join(kinds, ", "))
		}
		n, err := uint64(0), error(nil)
		if every, ok := strings.CutPrefix(rate, "1/"); ok {
			n, err = strconv.ParseUint(every, 10, 32)
			f.every = n
		} else if has {
			f.share, err = strconv.ParseFloat(rate, 64)
		}
		if err != nil || f.share < 0 || f.share > 1 || strings.HasPrefix(rate, "1/") && n == 0 {
			return nil, fmt.Errorf("--fault=%s: want a share from 0 to 1, or 1/n for each nth request", spec)
		}
		out = append(out, f)
	}
	return out, nil
}

// draw returns the kind of the first fault that hits this request, or "", and tells of it. Each of them counts the request.
func (fs faults) draw(rid string, tell func(string)) (kind string) {
	for _, f := range fs {
		hit := f.share == 1 || rand.Float64() < f.share
		if n := f.seen.Add(1); f.every > 0 {
			hit = n%f.every == 0
		}
		if hit && kind == "" {
			kind = f.kind
		}
	}
	if kind != "" {
		tell("fault " + kind + " for " + rid)
	}
	return kind
}
