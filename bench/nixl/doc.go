// Command nixl measures what internal/nixl costs: the same writes from Go and from a small C program that makes the same calls, to the same
// receiver, in turn, over TCP on loopback. The C program (testdata/bench.c) is compiled at the start.
//
//	make bench-nixl
//	PD_ROUTER_NIXL_LIBRARY=FILE go run ./bench/nixl [-rounds N]
//
// Receiver and both writers are processes, and new ones in each round. A repeat runs one block from C and one from Go, the order changing
// each time, and yields one ratio; the table shows the median of the ratios, which a noisy machine does not move. It ends with status 1
// when a ratio misses its goal.
package main
