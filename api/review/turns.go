package review

import (
	"context"
	"sync"
)

// Turns limits the calls of each user that are in progress, and the calls that wait. Use [NewTurns] to make one. It is safe for
// concurrent use.
type Turns struct {
	most, waiting int
	mu            sync.Mutex
	users         map[string]*queue
}

// queue counts the calls of one user.
type queue struct {
	slots chan struct{}
	all   int // in progress or waiting
}

// NewTurns returns Turns that allow each user most calls in progress, and waiting calls that wait.
func NewTurns(most, waiting int) *Turns {
	return &Turns{most: most, waiting: waiting, users: map[string]*queue{}}
}

// Take waits for a turn of the user, which ends with end. It returns false when too many others wait already, or ctx has ended.
func (t *Turns) Take(ctx context.Context, user string) (end func(), ok bool) {
	q := t.enter(user)
	if q == nil {
		return nil, false
	}
	select {
	case q.slots <- struct{}{}:
		return func() {
			<-q.slots
			t.leave(user, q)
		}, true
	case <-ctx.Done():
		t.leave(user, q)
		return nil, false
	}
}

// enter returns the queue of the user, or nil if it is full.
func (t *Turns) enter(user string) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.users[user]
	if q == nil {
		q = &queue{slots: make(chan struct{}, t.most)}
		t.users[user] = q
	}
	if q.all == t.most+t.waiting {
		return nil
	}
	q.all++
	return q
}

func (t *Turns) leave(user string, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.all--; q.all == 0 {
		delete(t.users, user)
	}
}
