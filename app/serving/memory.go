package serving

import (
	"crypto/sha256"
	"sync"
	"time"
)

// question is a hash of who asks for what, so that no token is kept.
type question [sha256.Size]byte

func questionOf(token, path string) question {
	return sha256.Sum256([]byte(token + "\x00" + path)) // no header has this byte
}

// memory keeps answers, each for the same time, and forgets the oldest when there are too many. Its methods may be called from
// many goroutines.
type memory struct {
	most  int
	holds time.Duration

	mu      sync.Mutex
	answers map[question]kept
	order   []question // oldest first
}

type kept struct {
	answer answer
	until  time.Time
}

func newMemory(most int, holds time.Duration) *memory {
	return &memory{most: most, holds: holds, answers: map[question]kept{}}
}

// get is the answer, if there is one that still holds.
func (m *memory) get(q question, now time.Time) (a answer, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, known := m.answers[q]
	if !known || !now.Before(k.until) {
		return answer{}, false
	}
	return k.answer, true
}

// put keeps an answer. One that is there already and holds stays, so that the order is that in which they end.
func (m *memory) put(q question, a answer, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, known := m.answers[q]; known && now.Before(k.until) {
		return
	}
	for len(m.order) > 0 && (len(m.order) >= m.most || !now.Before(m.answers[m.order[0]].until)) {
		delete(m.answers, m.order[0])
		m.order = m.order[1:]
	}
	m.answers[q] = kept{a, now.Add(m.holds)}
	m.order = append(m.order, q)
}
