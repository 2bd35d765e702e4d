package nixl

import (
	"testing"
	"time"
	"slices"
	"os/exec"
	"bufio"
	"encoding/hex"
	"fmt"
	"context"
)

func TestZZ(t *testing.T) {
	lib := realLibrary(t)
	cmd := exec.Command("/tmp/nxb", lib.Info().Path, "target", "67108864")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	cmd.Start()
	line, _ := bufio.NewReaderSize(out, 1<<20).ReadString('\n')
	var h string
	var base uint64
	fmt.Sscan(line, &h, &base)
	blob, _ := hex.DecodeString(h)
	m, _ := ParseMetadata(blob)
	from := newSide(t, lib, "w", 1<<20)
	p := from.peer(t, blob)
	cmd2 := exec.Command("/tmp/nxb", lib.Info().Path, "writer", "67108864")
	in2, _ := cmd2.StdinPipe()
	out2, _ := cmd2.StdoutPipe()
	cmd2.Start()
	r2 := bufio.NewReaderSize(out2, 1<<20)
	fmt.Fprintf(in2, "peer %s %s\n", h, m.Agent)
	ctx, c := context.WithTimeout(context.Background(), time.Minute)
	defer c()
	p.Write(ctx, from.region, []Span{{0, 4096, base}})
	med := func(s []time.Duration) time.Duration { slices.Sort(s); return s[len(s)/2] }
	one := func(spin time.Duration) time.Duration {
		t0 := time.Now()
		s := from.drv.start(from.h, p.name, DRAM, []span{{from.region.addr, base, 4096, 0}})
		for s.code == 1 { st := []Code{1}; from.drv.poll(from.h, []handle{s.req}, st, tick{spin: spin}); s.code = st[0]; if s.code != 1 { from.drv.release(from.h, s.req) } }
		return time.Since(t0)
	}
	cone := func() time.Duration {
		fmt.Fprintf(in2, "write 100 %d 1 0 4096 0\n", base)
		l, _ := r2.ReadString('\n')
		var s []time.Duration
		for l != "" { var n int64; var rest string; k, _ := fmt.Sscan(l, &n); if k == 0 { break }; s = append(s, time.Duration(n)); i := slices.Index([]byte(l), ' '); if i < 0 {break}; rest = l[i+1:]; l = rest }
		return med(s)
	}
	spins := []time.Duration{0, 5000, 10000, 15000, 100000}
	cc := []time.Duration{}
	all := make([][]time.Duration, len(spins))
	ratio := make([][]float64, len(spins))
	for range 20 {
		cm := cone()
		cc = append(cc, cm)
		for i, sp := range spins {
			var s []time.Duration
			for range 100 { s = append(s, one(sp)) }
			all[i] = append(all[i], med(s))
			ratio[i] = append(ratio[i], float64(med(s))/float64(cm))
		}
	}
	t.Log("C", med(cc))
	for i, sp := range spins {
		slices.Sort(ratio[i])
		t.Log("spin", sp, med(all[i]), ratio[i][len(ratio[i])/2])
	}
	in.Close()
	in2.Close()
	cmd.Wait()
	cmd2.Wait()
}
