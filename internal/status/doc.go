// Package status is the live page: what the router does at this moment, for people.
//
// All of it is one value, Snapshot, made from one look at the router. GET /queue is that value as JSON, the page draws it, and the
// feed sends it: whole to a newcomer, then once a second what has changed. A sampler makes one message a second for
// all watchers together, and runs only while there is one.
//
// # Ownership
//
// Page owns the sampler and the list of watchers. A Watcher belongs to the caller of Watch, who calls Run in the goroutine
// that writes to the client, and Close in any case. Close of the Page ends all watchers and waits for the sampler.
//
// # Invariants
//
//  1. Nothing that a client sent is shown: no prompt, no header, no text that may quote one.
//  2. A message costs the same however many requests wait: it holds the first of the line and the length of it.
//  3. The sampler runs while somebody watches, and at no other time.
//  4. A watcher never holds up another one or the sampler: one that does not take its messages is dropped.
//  5. What a watcher got adds up: whole state first, and no second and no request is missing between two messages.
//  6. The page loads nothing from elsewhere and runs nothing but its own script.
//
// # Not here
//
// HTTP (server), what is remembered of the past (router), numbers over days (metrics and their dashboards).
package status
