package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
)

// breakPolicy writes a policy that no process can start with.
func (r *run) breakPolicy(*rand.Rand) (end func() error, err error) {
	r.restarting.Lock()
	return func() error {
		defer r.restarting.Unlock()
		return r.writePolicy(r.text)
	}, r.writePolicy(r.text + "\n  - {name: [\n")
}

// writePolicy replaces the policy, as a mounted ConfigMap is.
func (r *run) writePolicy(text string) error {
	if err := os.WriteFile(r.policy+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(r.policy+".new", r.policy)
}

// stranger is the source of garbage.
const stranger = "/stranger"

// garbage publishes unreadable messages on the subjects of every noun.
func (r *run) garbage(random *rand.Rand) (end func() error, err error) {
	js, disconnect, err := r.raw()
	if err != nil {
		return nil, nil // the bus is away
	}
	defer disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for noun, eventType := range map[string]string{
		"delta.node.taints.": schemas.DeltaType, "scope." + strategy + ".default.node.": schemas.ScopeType,
		"intents." + strategy + ".default.node.": schemas.IntentsType, "verdict.evicted." + strategy + ".faults.": schemas.VerdictType,
		"request.stranger.": schemas.RequestType, "receipt.stranger.": schemas.ReceiptType,
		"maintenance.": schemas.MaintenanceType, "dead.REHOME_SCOPES.": "",
	} {
		for i, body := range []string{"\x00\x01", "{}", `[[[7]]]`, `{"intents":7,"pods":7,"outcome":7}`, strings.Repeat("[", 100_000)} {
			m := &nats.Msg{Subject: fmt.Sprintf("rehome.%sgarbage-%d-%d", noun, random.Uint32(), i), Data: []byte(body)}
			if i > 0 {
				m.Header = nats.Header{"ce-specversion": {"1.0"}, "ce-id": {m.Subject}, "ce-source": {stranger}, "ce-type": {eventType}}
			}
			_, _ = js.PublishMsgAsync(m) // the bus can be away
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
	}
	return nil, nil
}

// behavior is how the outside function answers.
type behavior func(*run, http.ResponseWriter, *http.Request, asked)

// function has the outside function behave in another way.
func function(b behavior) action {
	return func(r *run, _ *rand.Rand) (func() error, error) {
		r.function.Store(&b)
		return func() error { r.function.Store(nil); return nil }, nil
	}
}

func answerLate(_ *run, _ http.ResponseWriter, q *http.Request, _ asked) {
	pause(q.Context(), 5*time.Second)
}

func answerGarbage(_ *run, w http.ResponseWriter, _ *http.Request, _ asked) {
	_, _ = w.Write([]byte("\x00{moin"))
}

func answerEndlessly(_ *run, w http.ResponseWriter, _ *http.Request, _ asked) {
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
}

// answerProtectedPods wants pods that are protected and not of the scope.
func answerProtectedPods(r *run, w http.ResponseWriter, q *http.Request, a asked) {
	var moves []map[string]any
	for _, p := range r.keep {
		moves = append(moves, map[string]any{
			"id": "stolen." + string(p.UID), "node": a.Key, "reason": "I want it", "expires": time.Now().Add(time.Minute),
			"pod": map[string]any{"namespace": p.Namespace, "name": p.Name, "uid": p.UID},
		})
	}
	a.answer(w, q, moves)
}

// asked is the part of a scope that the function reads.
type asked struct{ Profile, Strategy, Kind, Key string }

func (a asked) answer(w http.ResponseWriter, q *http.Request, moves []map[string]any) {
	id := q.Header.Get("ce-id")
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "answer-" + id, "ce-source": "/function", "ce-type": schemas.IntentsType, "Content-Type": "application/json",
	} {
		w.Header().Set(name, value)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"profile": a.Profile, "strategy": a.Strategy, "intents": moves, "scope": map[string]string{"kind": a.Kind, "key": a.Key, "event": id},
	})
}

// ServeHTTP is the external function. It wants no moves, unless a situation changes its behavior.
func (r *run) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var a asked
	if err := json.NewDecoder(q.Body).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if b := r.function.Load(); b != nil {
		(*b)(r, w, q, a)
		return
	}
	a.answer(w, q, []map[string]any{})
}
