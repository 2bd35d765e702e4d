package staging

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The NIXL library reads its network from the environment when it is loaded: here it is TCP over loopback.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"} {
		if _, set := os.LookupEnv(name); !set {
			os.Setenv(name, value)
		}
	}
	if os.Getenv(childVariable) != "" {
		child() // does not return
	}
	goleak.VerifyTestMain(m)
}
