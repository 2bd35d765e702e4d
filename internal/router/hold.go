package router

// Withhold keeps the router from being ready, whatever its nodes say, until Allow; reason is what GET /health lists. It is first called
// before Run; further calls before Allow change the reason. It keeps no request from being served.
func (r *Router) Withhold(reason string) { r.withheld.Store(&reason) }

// Allow ends Withhold.
func (r *Router) Allow() {
	r.withheld.Store(nil)
	r.checkReady()
}

// Answered is closed when the prefill node and one decode node have answered for the first time. Unlike Ready it does not wait for Allow.
func (r *Router) Answered() <-chan struct{} { return r.answered }

// haveAnswered says whether the prefill node and one decode node have each answered once.
func (r *Router) haveAnswered() bool {
	if !r.prefill.Seen() {
		return false
	}
	for _, be := range r.backends {
		if be.Seen() {
			return true
		}
	}
	return false
}
