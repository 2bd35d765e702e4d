package scenario

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pd-router/internal/sim"
)

// What TestMain has made.
var (
	program string // path of the built program
	model   string // folder with the simulated model's tokenizer
)

// patience bounds every wait. It is far above what any of them takes: who runs into it has failed.
const patience = 2 * time.Minute

// sideBySide is how many scenarios run at once. They wait more than they compute.
const sideBySide = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if !given("test.parallel") {
		_ = flag.Set("test.parallel", sideBySide)
	}
	os.Exit(run(m))
}

func given(name string) (yes bool) {
	flag.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pd-router-scenario")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program, model = filepath.Join(dir, "pd-router"), filepath.Join(dir, "model")
	args := []string{"build", "-o", program}
	if raced {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "pd-router/cmd/pd-router")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	if err := sim.WriteTokenizer(model); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// sources has go test run these tests again when the program has changed, which they do not import: it keeps track of folders that a test
// reads.
var sources = sync.OnceFunc(func() {
	for _, dir := range []string{"../../cmd", "../../internal"} {
		_ = filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil })
	}
})

// until waits for an event outside this process, which has no other way to tell than to be asked.
func until(t testing.TB, what string, there func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for pause := time.Millisecond; !there(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
		time.Sleep(pause)
	}
}
