package demo

import (
	"fmt"
	"strings"
)

// turn is one request of a session.
type turn struct {
	agent  string
	prompt string // grows with each turn of its agent, as an agent's history does
	output int    // tokens
}

// agent is a sequence of turns; after some of them it waits for sub-agents that run side by side.
type agent struct {
	turns    []turn
	children map[int][]agent // by the turn after which they start
}

// session is a tree of 27 requests: a main agent of 5 turns with two rounds of sub-agents, 4 of 3 turns and
// 5 of 2.
func session() agent {
	main := newAgent("main", 5, 4000, 90)
	main.children = map[int][]agent{}
	for i := range 4 {
		main.children[1] = append(main.children[1], newAgent(fmt.Sprintf("search-%d", i+1), 3, 1500, 50))
	}
	for i := range 5 {
		main.children[3] = append(main.children[3], newAgent(fmt.Sprintf("edit-%d", i+1), 2, 2500, 60))
	}
	return main
}

// newAgent makes an agent whose first prompt has about words words and whose history grows by a quarter of them a turn.
func newAgent(name string, turns, words, output int) agent {
	a := agent{}
	for i := range turns {
		prompt := "[" + name + "] " + strings.Repeat("look at the next file and say what it does ", (words+i*words/4)/10)
		a.turns = append(a.turns, turn{agent: fmt.Sprintf("%s#%d", name, i+1), prompt: prompt, output: output + 10*i})
	}
	return a
}

// size is the number of requests of a and all below it.
func (a agent) size() int {
	n := len(a.turns)
	for _, round := range a.children {
		for _, c := range round {
			n += c.size()
		}
	}
	return n
}
