package topologyspread

import "encoding/binary"

// searchBudget is how many places a search looks at: some ten milliseconds.
const searchBudget = 200_000

// search is a depth-first search over all sequences of moves that the scheduler admits.
type search struct {
	*balance
	budget int
	seen   map[string]int // how many moves were left in a state, plus one
	cut    bool           // a deeper search could find more
}

// search looks for at least fewest and fewer than below moves after which all constraints hold: one more with each round, so that
// the first find is the smallest. It reports whether there is one, and makes the moves.
func (b *balance) search(fewest, below int) bool {
	s := search{balance: b, budget: searchBudget, cut: true}
	for moves := fewest; moves < below && s.cut && s.budget > 0; moves++ {
		s.seen, s.cut = map[string]int{}, false
		if s.reach(moves) {
			return true
		}
	}
	return false
}

// reach says whether all constraints hold after some more moves.
func (s *search) reach(left int) bool {
	need := 0
	for _, c := range s.spreads {
		need = max(need, c.fewest())
	}
	if need == 0 {
		return true
	}
	if need > left {
		s.cut = true
		return false
	}
	state := s.state()
	if s.seen[state] > left {
		return false
	}
	s.seen[state] = left + 1
	for _, from := range s.givers {
		for i := range s.places[from].groups {
			if s.budget > 0 && !s.places[from].groups[i].empty() && s.try(from, i, left) {
				return true
			}
		}
	}
	return false
}

// try moves the next pod of a group to the place where the scheduler can be expected to place its replacement.
func (s *search) try(from, group, left int) bool {
	if s.budget -= len(s.places); s.budget < 0 {
		return false
	}
	to := s.emptiest(from, s.places[from].groups[group].room)
	if to < 0 {
		return false
	}
	n := len(s.moves)
	s.do(from, group, to)
	if s.reach(left - 1) {
		return true
	}
	s.undo(n)
	return false
}

// emptiest is the emptiest place that takes a pod of another place; -1 for none.
func (b *balance) emptiest(from, room int) int {
	found, fewest := -1, 0
	for _, to := range b.order {
		if to == from || !b.hasRoom(room, to) || !b.admits(from, to) {
			continue
		}
		sum := 0
		for k, s := range b.spreads {
			sum += s.now[b.places[to].domains[k]] - s.least
		}
		if found < 0 || sum < fewest {
			found, fewest = to, sum
		}
	}
	return found
}

// admits says whether the scheduler admits a move by all constraints.
func (b *balance) admits(from, to int) bool {
	for k, s := range b.spreads {
		if !s.admits(b.places[from].domains[k], b.places[to].domains[k]) {
			return false
		}
	}
	return true
}

// state is equal for two sequences of moves that lead to the same.
func (s *search) state() string {
	var state []byte
	for i := range s.places {
		for j := range s.places[i].groups {
			state = binary.AppendUvarint(state, uint64(s.places[i].groups[j].gone))
		}
	}
	for _, c := range s.spreads {
		for _, n := range c.now {
			state = binary.AppendUvarint(state, uint64(n))
		}
	}
	for _, list := range s.room {
		for _, n := range list {
			state = binary.AppendUvarint(state, uint64(n))
		}
	}
	return string(state)
}
