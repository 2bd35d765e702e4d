package scenario

import "strconv"

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
)

// ask is one request.
type ask struct {
	path string
	body []byte
}

func itoa(n int) string { return strconv.Itoa(n) }

// atoi reads a number that was written by these tests.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
