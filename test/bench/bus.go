package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tap counts what is published to the streams of a bus, as a client of its own: each message once, with its subject and headers.
type tap struct {
	connection *nats.Conn

	mu    sync.Mutex
	found map[string]traffic // by the kind of subject
}

// traffic is a number of messages and their size together.
type traffic struct{ messages, bytes int }

// socket is where the server inside a rehome process takes connections.
type socket string

// InProcessConn implements [nats.InProcessConnProvider].
func (s socket) InProcessConn() (net.Conn, error) { return net.Dial("unix", string(s)) }

// openTap begins to count on the bus of a rehome process with this store.
func openTap(ctx context.Context, store string) (t *tap, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	t = &tap{found: map[string]traffic{}}
	server := nats.InProcessServer(socket(filepath.Join(store, "bus.sock")))
	if t.connection, err = nats.Connect("", nats.Name("bench"), server); err != nil {
		return nil, fmt.Errorf("bus of rehome: %w", err)
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	js, err := jetstream.New(t.connection)
	if err != nil {
		return nil, err
	}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		for _, subject := range info.Config.Subjects {
			subscription, err := t.connection.Subscribe(subject, t.add)
			if err != nil {
				return nil, fmt.Errorf("bus of rehome: subject %s: %w", subject, err)
			}
			if err := subscription.SetPendingLimits(-1, -1); err != nil {
				return nil, err
			}
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("bus of rehome: its streams: %w", err)
	}
	return t, t.connection.FlushWithContext(ctx)
}

func (t *tap) add(m *nats.Msg) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := kindOf(m.Subject)
	f := t.found[kind]
	t.found[kind] = traffic{f.messages + 1, f.bytes + m.Size()}
}

// kindOf returns the part of a subject that names the kind of message: two words, and the strategy of scopes and intents.
func kindOf(subject string) string {
	words := strings.Split(subject, ".")
	n := 2
	if len(words) > 2 && (words[1] == "scope" || words[1] == "intents") {
		n = 3
	}
	return strings.Join(words[:min(n, len(words))], ".")
}

// count returns how many messages and bytes there were for each of n changes.
func (t *tap) count(n int) (messages, bytes float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.found {
		messages += float64(f.messages) / float64(n)
		bytes += float64(f.bytes) / float64(n)
	}
	return messages, bytes
}

// kinds returns the kinds of messages for each of n changes, the most bytes first.
func (t *tap) kinds(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kinds := slices.SortedFunc(maps.Keys(t.found), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.found[b].bytes, t.found[a].bytes), cmp.Compare(a, b))
	})
	var parts []string
	for _, k := range kinds {
		f := t.found[k]
		each := quantity(float64(f.bytes/f.messages), "B")
		parts = append(parts, fmt.Sprintf("%s %.2f × %s", k, float64(f.messages)/float64(n), each))
	}
	return strings.Join(parts, ", ")
}

func (t *tap) close() { t.connection.Close() }
