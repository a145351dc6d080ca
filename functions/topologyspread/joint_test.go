package topologyspread

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// joint is a cluster with several constraints, small enough for an exhaustive search. Places are nodes.
type joint struct {
	skews  []int
	values [][]int // the domain of each node, by constraint
	room   [][]int // by list, then by node
	homes  []int   // the node of each pod
	lists  []int   // the list of each pod; -1 means that it may not move
}

func randomJoint(r *rand.Rand) joint {
	j := joint{skews: []int{1 + r.IntN(2), 1 + r.IntN(2)}}
	if r.IntN(8) == 0 {
		j.skews = append(j.skews, 1)
	}
	nodes := 2 + r.IntN(5)
	for k := range j.skews {
		values := make([]int, nodes)
		domains := 2 + r.IntN(2)
		if k == 1 && r.IntN(2) == 0 {
			domains = nodes // hosts
		}
		for n := range values {
			values[n] = n % domains
			if domains < nodes {
				values[n] = r.IntN(domains)
			}
		}
		j.values = append(j.values, values)
	}
	for range 1 + r.IntN(2) {
		list := make([]int, nodes)
		for n := range list {
			list[n] = []int{0, 1, 2, 12, 12}[r.IntN(5)]
		}
		j.room = append(j.room, list)
	}
	full := 1 + r.IntN(nodes)
	for range 2 + r.IntN(11) {
		j.homes = append(j.homes, r.IntN(full))
		j.lists = append(j.lists, r.IntN(len(j.room)))
		if r.IntN(5) == 0 {
			j.lists[len(j.lists)-1] = -1
		}
	}
	return j
}

// scope returns the input of the strategy. Domains without a node do not exist.
func (j joint) scope() schemas.SpreadScope {
	s := schemas.SpreadScope{Namespace: "web", Room: j.room}
	index := make([]map[int]int, len(j.skews))
	for k, values := range j.values {
		key := []string{corev1.LabelTopologyZone, "pool", "rack"}[k]
		var domains []schemas.Domain
		index[k] = map[int]int{}
		for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
			index[k][v] = len(domains)
			domains = append(domains, schemas.Domain{Value: value(v), Eligible: true, Count: j.count(k, j.homes)[v]})
		}
		if c := constraint(int32(j.skews[k]), over(key)); k == 0 {
			s.Constraint, s.Domains = c, domains
		} else {
			s.Others = append(s.Others, schemas.OtherConstraint{Constraint: c, Domains: domains})
		}
	}
	order := make([]int, len(j.values[0])) // the index of the place of each node
	var nodes []int
	for n := range order {
		nodes = append(nodes, n)
	}
	place := func(n int) (p schemas.Place) {
		for k := range j.skews {
			p = append(p, index[k][j.values[k][n]])
		}
		return p
	}
	slices.SortStableFunc(nodes, func(a, b int) int { return slices.Compare(place(a), place(b)) })
	s.Room = make([][]int, len(j.room))
	for i, n := range nodes {
		if i == 0 || !slices.Equal(s.Places[len(s.Places)-1], place(n)) {
			s.Places = append(s.Places, place(n))
			for l := range s.Room {
				s.Room[l] = append(s.Room[l], 0)
			}
		}
		order[n] = len(s.Places) - 1
		for l := range s.Room {
			s.Room[l][order[n]] += j.room[l][n]
		}
	}
	for i, home := range j.homes {
		p := pod(fmt.Sprintf("p%02d", i), nil)
		p.Place = order[home]
		if p.Room = j.lists[i]; p.Room < 0 {
			p.Room = 0
			protected()(&p.ScopedPod)
		}
		d := &s.Domains[index[0][j.values[0][home]]]
		d.Pods = append(d.Pods, p)
	}
	return s
}

// count returns the number of pods in each domain of a constraint.
func (j joint) count(k int, homes []int) map[int]int {
	counts := map[int]int{}
	for _, v := range j.values[k] {
		counts[v] += 0
	}
	for _, n := range homes {
		counts[j.values[k][n]]++
	}
	return counts
}

func (j joint) holds(homes []int) bool {
	for k := range j.skews {
		counts := slices.Collect(maps.Values(j.count(k, homes)))
		if slices.Max(counts)-slices.Min(counts) > j.skews[k] {
			return false
		}
	}
	return true
}

// admits reports whether the scheduler places a replacement on a node after its pod is gone.
func (j joint) admits(homes []int, pod, to int) bool {
	without := slices.Delete(slices.Clone(homes), pod, pod+1)
	for k := range j.skews {
		counts := j.count(k, without)
		if counts[j.values[k][to]]+1-slices.Min(slices.Collect(maps.Values(counts))) > j.skews[k] {
			return false
		}
	}
	return true
}

// samePlace reports whether two nodes are in the same domains.
func (j joint) samePlace(a, b int) bool {
	return !slices.ContainsFunc(j.values, func(values []int) bool { return values[a] != values[b] })
}

// reaches reports whether some sequence of at most n moves satisfies all constraints.
func (j joint) reaches(n int) bool {
	type state struct {
		homes, moved []int
	}
	states := []state{{homes: j.homes}}
	for depth := 0; ; depth++ {
		next, seen := []state{}, map[string]bool{}
		for _, s := range states {
			if j.holds(s.homes) {
				return true
			}
			for pod, list := range j.lists {
				if list < 0 || slices.Contains(s.moved, pod) {
					continue
				}
				for to, room := range j.room[list] {
					for _, m := range s.moved {
						if j.lists[m] == list && s.homes[m] == to {
							room--
						}
					}
					if room <= 0 || j.samePlace(to, s.homes[pod]) || !j.admits(s.homes, pod, to) {
						continue
					}
					homes := slices.Clone(s.homes)
					homes[pod] = to
					moved := append(slices.Clone(s.moved), pod)
					slices.Sort(moved)
					if id := fmt.Sprint(homes, moved); !seen[id] {
						seen[id] = true
						next = append(next, state{homes, moved})
					}
				}
			}
		}
		if depth == n {
			return false
		}
		states = next
	}
}

// check fails if the scheduler refuses a move of the plan, or a place has no room for it. It reports whether all
// constraints hold afterwards.
func (j joint) check(t *testing.T, b *balance, moves []move) bool {
	t.Helper()
	b.undo(0)
	for i, m := range moves {
		if !b.hasRoom(b.places[m.from].groups[m.group].room, m.to) || !b.admits(m.from, m.to) {
			t.Errorf("move %d of %s to place %d: refused", i, m.pod.Pod.Name, m.to)
		}
		b.do(m.from, m.group, m.to)
	}
	return !b.skewed()
}

func TestJointDecision(t *testing.T) {
	t.Run("no_exhaustive_search_finds_fewer_moves", func(t *testing.T) {
		r := randtest.New(t)
		reached, stuck := 0, 0
		for round := range 500 {
			j := randomJoint(r)
			s := j.scope()
			b := newBalance(&s, Args{}.movable, true)
			moves := slices.Clone(b.plan())
			fewer := len(moves) - 1
			if j.check(t, b, moves) {
				reached += min(len(moves), 1)
			} else {
				stuck++
				fewer = 3
			}
			if fewer >= 0 && j.reaches(min(fewer, 3)) {
				t.Errorf("round %d: %d moves, but fewer than %d do", round, len(moves), fewer+1)
			}
			if t.Failed() {
				t.Fatalf("%+v", j)
			}
		}
		t.Logf("%d reached, %d not", reached, stuck)
		if reached < 50 || stuck == 0 {
			t.Error("the test tests nothing")
		}
	})
	t.Run("depends_on_the_set_of_pods_only", func(t *testing.T) {
		r := randtest.New(t)
		for range 200 {
			j := randomJoint(r)
			shuffled := j.scope()
			for i := range shuffled.Domains {
				shuffled.Domains[i].Pods = randtest.Shuffled(r, shuffled.Domains[i].Pods)
			}
			test.Steady(t, Args{}.Decide, j.scope(), j.scope(), shuffled)
		}
	})
	t.Run("a_scope_that_contradicts_itself_moves_nothing", func(t *testing.T) {
		for _, change := range []func(*schemas.SpreadScope){
			func(s *schemas.SpreadScope) { s.Places[0] = schemas.Place{0} },
			func(s *schemas.SpreadScope) { s.Places[0][1] = 9 },
			func(s *schemas.SpreadScope) { s.Places = s.Places[:1] },
			func(s *schemas.SpreadScope) { s.Room[0] = s.Room[0][1:] },
			func(s *schemas.SpreadScope) { s.Domains[0].Pods[0].Room = 1 },
			func(s *schemas.SpreadScope) { s.Domains[0].Pods[0].Place = -1 },
		} {
			s := joint{
				skews: []int{1, 1}, values: [][]int{{0, 1}, {0, 1}}, room: [][]int{{0, 9}}, homes: []int{0, 0, 0}, lists: []int{0, 0, 0},
			}.scope()
			if got := (Args{}).Decide(s); len(got) != 1 {
				t.Fatalf("before the change: got %+v, want one move", got)
			}
			change(&s)
			if got := (Args{}).Decide(s); got != nil {
				t.Errorf("got %+v, want nothing", got)
			}
		}
	})
}
