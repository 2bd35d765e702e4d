// Command handoff measures how well the router keeps a decode slot at work, by the ways in which KV can be handed over: the same closed-loop load on
// one simulated prefill node and one simulated decode node, once for each mode of the router and each proportion of prefill to decode.
//
//	make bench-handoff
//	go run ./bench/handoff -router bin/pd-router [-unit 250ms] [-requests 20] [-clients 10] [-cases P=4D,P=D,D=4P] [-modes 'NAME=FLAGS;...']
//
// A request takes P to prefill (the card computes one prompt at a time), T to bring its KV over, D to decode. What a mode makes of it is held against
// two bounds on the time for each request: P + T + D, when a slot is held through all of it, and max(P, T + D), when only transfer and decode hold it.
// With --prefill-ahead the transfer is hidden too, so that max(P + T, D) is the bound there: below the second where decoding is the longest.
//
// Times are those of the simulators, so the figures of a mode hardly depend on the machine as long as it is not busy; the unit should be far
// above what the machine needs for a request. A mode whose flags the router does not know is left out, with a line that says so.
package main
