package tilert

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Reasons of a refusal, the "error" of a reject message (spec 2.2).
const (
	ReasonBusy          = "busy"
	ReasonCancelling    = "cancelling"
	ReasonDuplicateRank = "duplicate_rank"
	ReasonTooLong       = "seq_len exceeds max_seq_len"
)

// NoConsumer is the detail of a "cancelling" refusal for a rid that was released and not asked for again.
const NoConsumer = "no_consumer"

// Reply is a receiver's answer to a request: accept or reject. Protocol 1 sends it only to refuse.
type Reply struct {
	Accepted   bool
	RID        string
	Rank       int    // accept and duplicate_rank
	Generation uint64 // accept

	Reason    string // reject: one of the Reason constants
	Detail    string // cancelling: NoConsumer for a tombstoned rid
	BusyRID   string // busy: whose tenancy it is
	BusyState string // busy: in which state, protocol 2
	MaxSeqLen int    // seq_len exceeds max_seq_len: the limit

	Protocol Protocol // of the connection; selects the form on the wire
}

// MarshalJSON writes only what the reason has.
func (r Reply) MarshalJSON() ([]byte, error) {
	if r.Accepted {
		return json.Marshal(struct {
			Accepted   bool   `json:"accepted"`
			RID        string `json:"rid"`
			Rank       int    `json:"rank"`
			Generation uint64 `json:"generation"`
		}{true, r.RID, r.Rank, r.Generation})
	}
	w := struct {
		Accepted  *bool  `json:"accepted,omitempty"`
		Error     string `json:"error"`
		RID       string `json:"rid,omitempty"`
		Rank      *int   `json:"rank,omitempty"`
		Detail    string `json:"detail,omitempty"`
		BusyRID   string `json:"busy_rid,omitempty"`
		BusyState string `json:"busy_state,omitempty"`
		MaxSeqLen int    `json:"max_seq_len,omitempty"`
	}{Error: r.Reason, Detail: r.Detail, MaxSeqLen: r.MaxSeqLen}
	switch r.Reason {
	case ReasonBusy:
		w.BusyRID, w.BusyState = r.BusyRID, r.BusyState
		if r.Protocol == Protocol1 {
			w.BusyState = ""
		}
	case ReasonDuplicateRank:
		w.RID, w.Rank = r.RID, &r.Rank
	default:
		w.RID = r.RID
	}
	if r.Protocol != Protocol1 {
		w.Accepted = new(bool)
	}
	return json.Marshal(w)
}

// answer is what a sender makes of the bytes of a reply. It is as careful as the real sender: only an accept that
// matches in every field lets it write.
type answer struct {
	reply    Reply
	admitted bool
}

func parseReply(b []byte, rid string, rank int) (answer, error) {
	var w struct {
		Accepted   json.RawMessage `json:"accepted"`
		RID        json.RawMessage `json:"rid"`
		Rank       json.RawMessage `json:"rank"`
		Generation json.RawMessage `json:"generation"`
		Error      json.RawMessage `json:"error"`
		Detail     json.RawMessage `json:"detail"`
		BusyRID    json.RawMessage `json:"busy_rid"`
		BusyState  json.RawMessage `json:"busy_state"`
		MaxSeqLen  json.RawMessage `json:"max_seq_len"`
	}
	if err := unmarshalObject(b, &w); err != nil {
		return answer{}, fmt.Errorf("reply: %w", err)
	}
	r := Reply{
		Accepted: truthy(w.Accepted), RID: text(w.RID), Reason: text(w.Error), Detail: text(w.Detail),
		BusyRID: text(w.BusyRID), BusyState: text(w.BusyState),
	}
	gotRank, rankErr := strconv.Atoi(string(w.Rank))
	limit, _ := strconv.Atoi(string(w.MaxSeqLen))
	generation, genErr := strconv.ParseUint(string(w.Generation), 10, 64)
	r.Rank, r.MaxSeqLen, r.Generation = gotRank, limit, generation
	ok := r.Accepted && r.RID == rid && rankErr == nil && gotRank == rank && genErr == nil
	return answer{r, ok}, nil
}

// truthy is Python's idea of it, as "accepted" is tested with it.
func truthy(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`, "[]", "{}":
		return false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return err != nil || f != 0
}

// text is the string in raw, or "" for anything else.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // another type leaves it empty
	return s
}
