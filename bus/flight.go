package bus

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// flight is a key that is being worked on.
type flight struct {
	current delivery
	waiting *delivery // a newer message of the key
}

// delivery is a message that the server handed out.
type delivery struct {
	message jetstream.Msg
	meta    *jetstream.MsgMetadata
	config  jetstream.ConsumerConfig // of the consumer that it came from
}

func (d delivery) sequence() uint64 { return d.meta.Sequence.Stream }

// admit says whether d is to be handled now. If not, its key is being worked on, and d waits or is dropped.
func (k *worker) admit(d delivery) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.key(d)
	f := k.flights[key]
	switch {
	case f == nil:
		k.flights[key] = &flight{current: d}
		return true
	case d.sequence() == f.current.sequence(): // the server lost patience, or our word: the run that is under way counts
		f.current = d
	case d.sequence() < f.current.sequence():
		forget(d)
	case f.waiting == nil:
		f.waiting = &d
	default:
		older := *f.waiting
		if older.sequence() > d.sequence() {
			older, d = d, older
		}
		if older.sequence() < d.sequence() {
			forget(older)
		}
		f.waiting = &d
	}
	return false
}

// forget settles a message that a newer one has replaced, in the stream too.
func forget(d delivery) { _ = d.message.Ack() }

// land takes a key out of work, or returns the message that waits for it.
func (k *worker) land(d delivery) (next delivery, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.key(d)
	f := k.flights[key]
	if f.waiting == nil {
		delete(k.flights, key)
		return delivery{}, false
	}
	f.current, f.waiting = *f.waiting, nil
	return f.current, true
}

// newest is the last copy of d that the server handed out: it listens only to what is said about that one.
func (k *worker) newest(d delivery) delivery {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flights[k.key(d)].current
}

// keep tells the server three times in each AckWait that the messages of a key are being worked on, until it is told to
// stop.
func (k *worker) keep(d delivery) (stop func()) {
	every := max(d.config.AckWait/3, time.Millisecond)
	done := make(chan struct{})
	var timer *time.Timer
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(every, func() {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-done:
			return
		default:
		}
		k.touch(k.key(d))
		timer.Reset(every)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		close(done)
		timer.Stop()
	}
}

func (k *worker) touch(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.flights[key]
	_ = f.current.message.InProgress() // without a connection the message is handed out again, and admit sees to that
	if f.waiting != nil {
		_ = f.waiting.message.InProgress()
	}
}
