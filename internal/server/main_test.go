package server

import (
	"testing"

	"go.uber.org/goleak"
)

// fasthttp's own: the cleaner of idle workers sleeps for ten seconds before it sees that its server has stopped, and the
// clock never stops.
var notOurs = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, notOurs...) }
