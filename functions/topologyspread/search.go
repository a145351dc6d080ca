package topologyspread

import "encoding/binary"

// searchBudget is the number of counts that a search reads, which takes some milliseconds.
const searchBudget = 1_000_000

// search is a depth-first search over the sequences of moves that the scheduler admits.
type search struct {
	*balance
	anywhere bool // a replacement goes to any place; else to the emptiest that takes it
	budget   int
	cost     int            // of one move: the counts that it looks at
	seen     map[string]int // how many moves were left in a state, plus one
	cut      bool           // a deeper search could find more
}

// search looks for moves that satisfy all constraints: at least fewest, and fewer than below. Each round tries one more move, so
// the first result is the smallest. It prefers moves that work if each replacement goes to the emptiest place. It reports whether
// there are such moves, and makes them.
func (b *balance) search(fewest, below int) bool {
	cost := len(b.places) * (1 + len(b.spreads) + len(b.room))
	if fewest*cost > searchBudget {
		return false
	}
	emptiest := search{balance: b, budget: searchBudget, cost: cost, cut: true}
	anywhere := search{balance: b, budget: searchBudget, cost: cost, cut: true, anywhere: true}
	for moves := fewest; moves < below && (emptiest.goesOn() || anywhere.goesOn()); moves++ {
		if emptiest.reaches(moves) || anywhere.reaches(moves) {
			return true
		}
	}
	return false
}

func (s *search) goesOn() bool { return s.cut && s.budget > 0 }

// reaches reports whether all constraints hold after some moves.
func (s *search) reaches(moves int) bool {
	if !s.goesOn() {
		return false
	}
	s.seen, s.cut = map[string]int{}, false
	return s.reach(moves)
}

// reach reports whether all constraints hold after some more moves.
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

// try moves the next pod of a group.
func (s *search) try(from, group, left int) bool {
	if s.budget <= 0 {
		return false
	}
	room, emptiest, fewest := s.places[from].groups[group].room, -1, 0
	for _, to := range s.order {
		if to == from || !s.hasRoom(room, to) || !s.admits(from, to) {
			continue
		}
		if s.anywhere {
			if s.move(from, group, to, left) {
				return true
			}
			continue
		}
		if n := s.above(to); emptiest < 0 || n < fewest {
			emptiest, fewest = to, n
		}
	}
	return emptiest >= 0 && s.move(from, group, emptiest, left)
}

// move reports whether all constraints hold after this move and some more.
func (s *search) move(from, group, to, left int) bool {
	s.budget -= s.cost
	n := len(s.moves)
	s.do(from, group, to)
	if s.reach(left - 1) {
		return true
	}
	s.undo(n)
	return false
}

// above returns the number of pods in the domains of a place above the least.
func (b *balance) above(place int) (n int) {
	for k, s := range b.spreads {
		n += s.now[b.places[place].domains[k]] - s.least
	}
	return n
}

// admits reports whether the scheduler admits a move under all constraints.
func (b *balance) admits(from, to int) bool {
	for k, s := range b.spreads {
		if !s.admits(b.places[from].domains[k], b.places[to].domains[k]) {
			return false
		}
	}
	return true
}

// state returns the same value for two sequences of moves with the same result.
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
