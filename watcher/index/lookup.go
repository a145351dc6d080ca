package index

import (
	"k8s.io/apimachinery/pkg/labels"
)

// lookup finds the selectors that can match a set of labels without asking them all: most selectors require one exact
// label.
type lookup[K comparable] struct {
	byLabel map[label]map[K]bool
	others  map[K]bool
}

type label struct{ key, value string }

func newLookup[K comparable]() *lookup[K] {
	return &lookup[K]{byLabel: map[label]map[K]bool{}, others: map[K]bool{}}
}

func (l *lookup[K]) add(k K, key, value string, exact bool) {
	if !exact {
		l.others[k] = true
		return
	}
	at := label{key, value}
	if l.byLabel[at] == nil {
		l.byLabel[at] = map[K]bool{}
	}
	l.byLabel[at][k] = true
}

func (l *lookup[K]) remove(k K, key, value string, exact bool) {
	if !exact {
		delete(l.others, k)
		return
	}
	at := label{key, value}
	delete(l.byLabel[at], k)
	if len(l.byLabel[at]) == 0 {
		delete(l.byLabel, at)
	}
}

// each calls f for every selector that can match these labels.
func (l *lookup[K]) each(of labels.Set, f func(K)) {
	for k := range l.others {
		f(k)
	}
	for key, value := range of {
		for k := range l.byLabel[label{key, value}] {
			f(k)
		}
	}
}
