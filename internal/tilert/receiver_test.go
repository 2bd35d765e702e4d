package tilert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bench is a receiver of two ranks and 128 tokens with a clock that the test turns.
type bench struct {
	t *testing.T
	*Receiver
	now time.Time
}

func newBench(t *testing.T, protocol Protocol) *bench {
	return &bench{t, NewReceiver(ReceiverOptions{Protocol: protocol, Senders: 2, MaxSeqLen: 128}), time.Unix(1000, 0)}
}

func (b *bench) ask(rid string, rank int) (Reply, *Writer) {
	return b.Admit(b.now, &Request{RID: rid, Rank: rank, SeqLen: 4, AdmissionWindow: Seconds(3 * time.Second)})
}

// join asks and needs an accept.
func (b *bench) join(rid string, rank int) *Writer {
	b.t.Helper()
	reply, w := b.ask(rid, rank)
	require.Truef(b.t, reply.Accepted, "%s rank %d: %+v", rid, rank, reply)
	require.Equal(b.t, reply.Generation, w.Generation)
	return w
}

// refuse asks and needs a refusal.
func (b *bench) refuse(rid string, rank int, reason string) Reply {
	b.t.Helper()
	reply, w := b.ask(rid, rank)
	require.Falsef(b.t, reply.Accepted, "%s rank %d", rid, rank)
	require.Nil(b.t, w)
	require.Equal(b.t, reason, reply.Reason)
	return reply
}

// finish writes one whole request.
func (b *bench) finish(rid string) *Transfer {
	b.t.Helper()
	x, y := b.join(rid, 0), b.join(rid, 1)
	b.Done(x)
	t, ok := b.Done(y)
	require.True(b.t, ok)
	b.Leave(x)
	b.Leave(y)
	return t
}

func (b *bench) wantState(want State) {
	b.t.Helper()
	got, _ := b.State()
	require.Equal(b.t, want.String(), got.String())
}

func TestTwoRanksShareOneTenancyInAnyOrder(t *testing.T) { // case 180
	for _, ranks := range [][2]int{{0, 1}, {1, 0}} {
		b := newBench(t, Protocol2)
		x, y := b.join("a", ranks[0]), b.join("a", ranks[1])
		assert.Equal(t, x.Generation, y.Generation)
		b.wantState(Transferring)
		assert.True(t, b.Busy())
	}
}

func TestARankIsDoneOnceAndAnotherRidWaits(t *testing.T) { // case 181
	b := newBench(t, Protocol2)
	x := b.join("a", 0)
	reply := b.refuse("b", 0, ReasonBusy)
	assert.Equal(t, []string{"a", "transferring"}, []string{reply.BusyRID, reply.BusyState})
	b.Done(x)
	b.refuse("a", 0, ReasonDuplicateRank)
	b.join("a", 1)
}

func TestALongPromptIsRefusedBeforeAnythingElse(t *testing.T) { // case 182
	b := newBench(t, Protocol2)
	reply, w := b.Admit(b.now, &Request{RID: "a", SeqLen: 129})
	assert.Equal(t, Reply{RID: "a", Reason: ReasonTooLong, MaxSeqLen: 128, Protocol: Protocol2}, reply)
	assert.Nil(t, w)
	b.wantState(Free)
	b.join("b", 0)
	reply, _ = b.Admit(b.now, &Request{RID: "a", SeqLen: 129})
	assert.Equal(t, ReasonTooLong, reply.Reason, "also while another rid has the buffer")
}

func TestATransferIsCompleteWhenAllRanksAreDone(t *testing.T) { // case 183
	b := newBench(t, Protocol2)
	x, y, stranger := b.join("a", 0), b.join("a", 1), b.join("a", 7)
	_, ok := b.Done(x)
	assert.False(t, ok)
	_, ok = b.Done(stranger)
	assert.False(t, ok, "a rank that is no sender is let in and does not count")
	b.wantState(Transferring)
	done, ok := b.Done(y)
	require.True(t, ok)
	assert.Equal(t, []any{"a", x.Generation, 4}, []any{done.RID, done.Generation, done.SeqLen})
	b.wantState(Complete)
	_, ok = b.Done(y)
	assert.False(t, ok, "it is complete once")
	assert.False(t, b.Busy())
}

// Invariant 4.
func TestAReleaseUnderALiveWriterCancels(t *testing.T) { // case 184
	b := newBench(t, Protocol2)
	x := b.join("a", 0)
	b.Release(b.now, "a")
	b.wantState(Cancelling)
	assert.Equal(t, "cancelling", b.refuse("b", 0, ReasonBusy).BusyState)
	b.now = b.now.Add(time.Hour)
	b.refuse("b", 0, ReasonBusy)
	b.refuse("a", 1, ReasonCancelling) // its tombstone is gone, the old writer is not
	_, ok := b.Done(x)
	assert.False(t, ok, "a cancelled transfer does not complete")
	b.Leave(x)
	b.Leave(x)
	b.wantState(Free)
	assert.Greater(t, b.join("b", 0).Generation, x.Generation, "generations never repeat")
}

func TestEachWriterLeavesOnce(t *testing.T) {
	b := newBench(t, Protocol2)
	x, y := b.join("a", 0), b.join("a", 1)
	b.Release(b.now, "a")
	b.Leave(x)
	b.Leave(x)
	assert.Equal(t, 1, b.Writers())
	b.wantState(Cancelling)
	b.Leave(y)
	b.wantState(Free)
}

// Invariant 5.
func TestAReleasedRidComesBackOnlyWhenExpected(t *testing.T) { // case 185
	b := newBench(t, Protocol2)
	b.finish("a")
	b.Release(b.now, "a")
	b.wantState(Free)
	assert.Equal(t, NoConsumer, b.refuse("a", 0, ReasonCancelling).Detail)
	b.wantState(Free)
	b.finish("b")
	b.Expect("a")
	b.finish("a")

	b.Release(b.now, "a")
	b.now = b.now.Add(TenancyAge)
	b.join("a", 0)
}

func TestATombstoneLastsAsLongAsTheSenderAsks(t *testing.T) { // case 186
	b := newBench(t, Protocol2)
	b.Receiver = NewReceiver(ReceiverOptions{Senders: 2, MaxSeqLen: 128, Age: 50 * time.Millisecond})
	b.Release(b.now, "a")
	ask := func(rank int, window time.Duration) Reply {
		reply, _ := b.Admit(b.now, &Request{RID: "a", Rank: rank, SeqLen: 4, AdmissionWindow: Seconds(window)})
		return reply
	}
	assert.Equal(t, NoConsumer, ask(0, 30*time.Second).Detail)
	b.now = b.now.Add(100 * time.Millisecond)
	assert.Equal(t, NoConsumer, ask(1, 10*time.Millisecond).Detail)
	b.Release(b.now, "a") // would end sooner too
	b.now = b.now.Add(20 * time.Second)
	assert.Equal(t, NoConsumer, ask(1, 10*time.Millisecond).Detail, "a shorter window does not shorten it")
	b.now = b.now.Add(20 * time.Second)
	assert.True(t, ask(0, 0).Accepted)
}

func TestADoneCountsForTheGenerationOfItsConnection(t *testing.T) { // case 187
	b := newBench(t, Protocol2)
	old := b.join("a", 0)
	b.Leave(old)
	b.Release(b.now, "a")
	b.Expect("a")
	x, y := b.join("a", 0), b.join("a", 1)
	b.Done(y)
	_, ok := b.Done(old)
	assert.False(t, ok, "the old connection's done is not the new one's")
	b.wantState(Transferring)
	_, ok = b.Done(x)
	assert.True(t, ok)
}

func TestWhoseBufferMayBeTaken(t *testing.T) { // case 188
	for _, tc := range []struct {
		name  string
		setup func(b *bench)
		after time.Duration
		taken bool
	}{
		{"unfinished, its writer gone, young", func(b *bench) { b.Leave(b.join("a", 0)) }, TenancyAge - 1, false},
		{"unfinished, its writer gone, old", func(b *bench) { b.Leave(b.join("a", 0)) }, TenancyAge, true},
		{"unfinished with a writer, however old", func(b *bench) { b.join("a", 0) }, 100 * TenancyAge, false},
		{"complete, with a connection that has not closed", func(b *bench) { b.Done(b.join("a", 0)); b.Done(b.join("a", 1)) }, 0, true},
		{"cancelled, its writer still there", func(b *bench) { b.join("a", 0); b.Release(b.now, "a") }, 100 * TenancyAge, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, Protocol2)
			tc.setup(b)
			b.now = b.now.Add(tc.after)
			reply, _ := b.ask("b", 0)
			assert.Equal(t, tc.taken, reply.Accepted, reply)
		})
	}
}

func TestPromptTokensComeFromWhicheverRankHasThem(t *testing.T) { // case 189
	ask := func(b *bench, rank int, ids []int) *Writer {
		_, w := b.Admit(b.now, &Request{RID: "a", Rank: rank, SeqLen: 4, PromptTokenIDs: ids})
		return w
	}
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		b := newBench(t, Protocol2)
		for _, rank := range order {
			var ids []int
			if rank == 0 {
				ids = []int{5, 6}
			}
			ask(b, rank, ids)
		}
		cur, ok := b.Current()
		require.True(t, ok)
		assert.Equal(t, []int{5, 6}, cur.PromptTokenIDs)
	}
	b := newBench(t, Protocol2)
	ask(b, 1, nil)
	cur, _ := b.Current()
	assert.Empty(t, cur.PromptTokenIDs)
}

func TestARankThatLeftWithoutDoneMayComeAgain(t *testing.T) {
	b := newBench(t, Protocol2)
	x := b.join("a", 0)
	b.Leave(x)
	assert.Equal(t, 0, b.Writers())
	assert.Equal(t, x.Generation, b.join("a", 0).Generation)
}

func TestAReleaseOfAnotherRidTouchesNothing(t *testing.T) {
	b := newBench(t, Protocol2)
	b.join("a", 0)
	b.Release(b.now, "b")
	b.wantState(Transferring)
	b.refuse("b", 0, ReasonCancelling) // but b is tombstoned, before anything is looked at
	b.Release(b.now, "never seen")
}

func TestTombstonesAreClearedAway(t *testing.T) {
	b := newBench(t, Protocol2)
	for range 5000 {
		b.now = b.now.Add(time.Second)
		b.Release(b.now, NewRequestID())
	}
	assert.LessOrEqual(t, len(b.tomb), 1024)
}

func TestProtocol1(t *testing.T) { // spec 2.3, last paragraph
	t.Run("a young transfer is not replaced, an old one is, under a live writer", func(t *testing.T) {
		b := newBench(t, Protocol1)
		x := b.join("a", 0)
		assert.Equal(t, "a", b.refuse("b", 0, ReasonBusy).BusyRID)
		b.now = b.now.Add(TenancyAge)
		b.join("b", 0)
		_, ok := b.Done(x)
		assert.False(t, ok)
		b.Leave(x)
		b.wantState(Transferring)
	})
	t.Run("a release frees whatever is there, and leaves no tombstone", func(t *testing.T) {
		b := newBench(t, Protocol1)
		b.join("a", 0)
		b.Release(b.now, "b")
		b.wantState(Free)
		b.Release(b.now, "a")
		b.finish("a")
	})
	t.Run("done goes by rid alone", func(t *testing.T) {
		b := newBench(t, Protocol1)
		old := b.join("a", 0)
		b.Release(b.now, "a")
		y := b.join("a", 1)
		b.Done(old)
		_, ok := b.Done(y)
		assert.True(t, ok)
	})
}

func TestEveryStateHasAName(t *testing.T) {
	seen := map[string]bool{}
	for s := range NumStates {
		seen[s.String()] = true
	}
	assert.Len(t, seen, int(NumStates))
	assert.Equal(t, "complete", Complete.String())
}
