package nixl

// handle is a pointer of the C library; zero is none.
type handle uintptr

// span is one piece of a write as the C side takes it: absolute addresses, and the device that the peer registered.
type span struct {
	local, remote, len, dev uint64
}

// started is what became of a new write.
type started struct {
	code   Code
	call   string // the C function that gave the code, if it is an error
	req    handle // set only while in progress; everything else is released already
	posted bool   // something may have been sent
}

// driver is the C library as this package uses it. Every method is blocking C: no Go lock is held around one, and whoever calls
// it accepts that it may not come back. The library is the only implementation outside of tests.
type driver interface {
	createAgent(name string) (handle, error)
	destroyAgent(agent handle) error
	register(agent handle, addr, n uint64) (handle, error)
	deregister(agent, registration handle) error
	localMetadata(agent handle) ([]byte, error)
	load(agent handle, blob []byte, name string) error
	invalidate(agent handle, name string) error
	// start posts one write and looks at it for a short while, as most small ones end within that.
	start(agent handle, peer string, mem MemType, spans []span) started
	// poll sets the status of each request, after a pause, and comes back early when one has ended.
	poll(agent handle, reqs []handle, status []Code, t tick)
	release(agent, req handle) error
}
