// Command bench measures what the router costs: the same load against the nodes directly and through the router, in
// turn, on one machine. It starts two nodes without any delay of their own in its process, and the router binary as a process of
// its own, whose CPU time and memory it reads from /proc.
//
//	go run ./bench -router bin/pd-router
//
// Figures of one run are comparable with each other and with nothing else; docs/benchmarks.md keeps some.
package main
