package tilert

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func marshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// The hello of a 0.1.6.post3 decode node, NIXL on host memory, with its metadata shortened.
const realHello = `{"magic": "tilert-pd", "protocol_version": 2, "layout_version": 10, "transport": "nixl", "max_seq_len": 128, "busy": false, ` +
	`"nixl_meta": "AAECAw==", "nixl_dev": 0, "senders": 2, "kv_base": 140176485515264, "pe_base": 140176490854400, "ki_base": 140176492148736}`

func TestParseHello(t *testing.T) {
	h, err := ParseHello([]byte(realHello))
	require.NoError(t, err)
	assert.Equal(t, &Hello{
		Magic: Magic, Protocol: 2, LayoutVersion: 10, Transport: "nixl", MaxSeqLen: 128, Senders: 2, NixlMeta: []byte{0, 1, 2, 3},
		KVBase: []uint64{140176485515264}, PEBase: []uint64{140176490854400}, KIBase: []uint64{140176492148736},
	}, h)
	assert.JSONEq(t, realHello, marshal(t, h), "and back")

	h, err = ParseHello([]byte(`{"magic":"tilert-pd","layout_version":10,"transport":"mooncake","max_seq_len":64,"busy":true,"session_id":"10.0.0.2:17000","kv_base":1,"pe_base":2,"ki_base":3}`))
	require.NoError(t, err)
	assert.Equal(t, Protocol1, h.Protocol, "a hello without a version is of protocol 1")
	assert.Equal(t, 1, h.Senders, "and has one sender")
	assert.Equal(t, "10.0.0.2:17000", h.SessionID)
	assert.NotContains(t, marshal(t, h), "protocol_version")
	assert.NotContains(t, marshal(t, h), "senders")

	h, err = ParseHello([]byte(`{"magic":"tilert-pd","nshards":2,"kv_base":[1,18446744073709551615],"pe_base":[3,4],"ki_base":[5,6]}`))
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 18446744073709551615}, h.KVBase)
	assert.Contains(t, marshal(t, h), `"nshards":2,"kv_base":[1,18446744073709551615]`)
}

func TestHellosThatAreRefused(t *testing.T) {
	for name, in := range map[string]string{
		"not JSON":                   `x`,
		"a list":                     `[]`,
		"fewer bases than shards":    `{"magic":"tilert-pd","nshards":2,"kv_base":[1,2],"pe_base":[3],"ki_base":[5,6]}`,
		"no bases":                   `{"magic":"tilert-pd"}`,
		"a negative base":            `{"magic":"tilert-pd","kv_base":-1,"pe_base":2,"ki_base":3}`,
		"a version that is no digit": `{"magic":"tilert-pd","protocol_version":"two","kv_base":1,"pe_base":2,"ki_base":3}`,
		"metadata that is no base64": `{"magic":"tilert-pd","nixl_meta":"*","kv_base":1,"pe_base":2,"ki_base":3}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseHello([]byte(in))
			assert.Error(t, err)
		})
	}
}

func TestParseRequest(t *testing.T) {
	r, err := ParseRequest([]byte(`{"rid": "a", "rank": 1, "seq_len": 4, "last_prompt_token": 9, "sampling": null, "admission_window_s": 3.0, "prompt_token_ids": [1, 2]}`))
	require.NoError(t, err)
	assert.Equal(t, []any{"a", 1, 4, 9, Seconds(3 * time.Second), []int{1, 2}}, []any{r.RID, r.Rank, r.SeqLen, r.LastPromptToken, r.AdmissionWindow, r.PromptTokenIDs})
	for name, in := range map[string]string{
		"no rid": `{"rank":0,"seq_len":4}`, "no rank": `{"rid":"a","seq_len":4}`, "no length": `{"rid":"a","rank":0}`,
		"null length": `{"rid":"a","rank":0,"seq_len":null}`, "a rid that is no text": `{"rid":5,"rank":0,"seq_len":4}`,
		"a fraction": `{"rid":"a","rank":0,"seq_len":3.5}`, "a window that is no number": `{"rid":"a","rank":0,"seq_len":4,"admission_window_s":"x"}`,
		"a list": `[1]`, "nothing": ``,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRequest([]byte(in))
			assert.Error(t, err)
		})
	}
	for in, want := range map[string]time.Duration{"-5": 0, "null": 0, "1e12": time.Hour, "0.25": time.Second / 4} {
		r, err := ParseRequest([]byte(`{"rid":"a","rank":0,"seq_len":4,"admission_window_s":` + in + `}`))
		require.NoError(t, err)
		assert.Equal(t, want, time.Duration(r.AdmissionWindow), in)
	}
}

// The forms of spec 2.2, as a 0.1.6.post3 decode node sends them.
func TestReplies(t *testing.T) {
	for _, tc := range []struct {
		r    Reply
		want string
	}{
		{Reply{Accepted: true, RID: "a", Generation: 1}, `{"accepted": true, "rid": "a", "rank": 0, "generation": 1}`},
		{Reply{Reason: ReasonBusy, RID: "b", BusyRID: "a", BusyState: "transferring"}, `{"accepted": false, "error": "busy", "busy_rid": "a", "busy_state": "transferring"}`},
		{Reply{Reason: ReasonDuplicateRank, RID: "a", Rank: 1}, `{"accepted": false, "error": "duplicate_rank", "rid": "a", "rank": 1}`},
		{Reply{Reason: ReasonTooLong, RID: "a", MaxSeqLen: 128}, `{"accepted": false, "error": "seq_len exceeds max_seq_len", "rid": "a", "max_seq_len": 128}`},
		{Reply{Reason: ReasonCancelling, RID: "a", Detail: NoConsumer}, `{"accepted": false, "error": "cancelling", "rid": "a", "detail": "no_consumer"}`},
		{Reply{Reason: ReasonBusy, BusyRID: "a", Protocol: Protocol1}, `{"error": "busy", "busy_rid": "a"}`},
	} {
		assert.JSONEq(t, tc.want, marshal(t, tc.r))
	}
}

func TestDoneMessages(t *testing.T) {
	assert.JSONEq(t, `{"done":true,"rid":"a","rank":3,"generation":7}`, marshal(t, Done{true, "a", 3, 7}))
	assert.JSONEq(t, `{"done":true,"rid":"a","rank":3}`, marshal(t, Done{true, "a", 3, 0}), "protocol 1")
	d, err := ParseDone([]byte(`{"done":true,"rid":"a","rank":3,"generation":7}`))
	require.NoError(t, err)
	assert.Equal(t, &Done{true, "a", 3, 7}, d)
	for _, in := range []string{`{"done":false}`, `{}`, `true`, `{"done":1}`} {
		_, err := ParseDone([]byte(in))
		assert.Error(t, err, in)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(realHello))
	f.Add([]byte(`{"rid":"a","rank":0,"seq_len":4,"admission_window_s":3.0}`))
	f.Add([]byte(`{"accepted":true,"rid":"a","rank":0,"generation":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseHello(b); err == nil && h.Magic == Magic {
			again, err := ParseHello([]byte(marshal(t, h)))
			require.NoError(t, err)
			assert.Equal(t, h.Region(), again.Region())
		}
		if r, err := ParseRequest(b); err == nil {
			_, err := ParseRequest([]byte(marshal(t, r)))
			require.NoError(t, err)
		}
		_, _ = parseReply(b, "a", 0)
	})
}
