// Command bench measures what the router costs: the same load on the decode node itself, through the router, through the least router that Go
// allows (bench/bare) and through others, in turn on one machine. It starts two nodes without any delay of their own in its process, and each router as
// a process of its own, whose CPU time and memory it reads from the kernel.
//
//	go run ./bench -router bin/pd-router [-only PART] [-repeats 5] [-flags 'FLAGS'] [-peer 'NAME=COMMAND']... [-queue-peer 'NAME=COMMAND']...
//
// In a command, {port} is where the router is to listen, {port2} another free port, {vllm} and {decode} the addresses of the nodes. The nodes
// serve routers for two vLLM nodes and for two SGLang nodes too, with the same tokens in the same chunks.
//
// The parts: ttft, requests, tokens and paced in front of 64 slots; gap, use, order, waiters and start in front of one. Targets take turns within each
// repeat. A line has the median of each target; below it is how the router stands to each other one: the median of the ratios of each
// repeat, and the lowest and the highest of them. These ratios can be compared with those of other runs, the figures only within a run;
// docs/benchmarks.md keeps some.
package main
