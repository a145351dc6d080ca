package actuator

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// For any content of the ledger, each entry must be reported as unreadable or survive a write and a read unchanged, and
// the public view must contain it.
func FuzzLedger(f *testing.F) {
	add := func(key string, value any) {
		data := expect.ToJSON(f, value)
		f.Add(key, data)
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	intent := schemas.Intent{ID: "1.uid", Pod: schemas.PodRef{Namespace: "shop", Name: "cart-0", UID: "uid"}, Node: "worker-7", Expires: at}
	r := record{Intent: Intent{Profile: "default", Strategy: "A", Intent: intent}, Method: schemas.MethodSurge, Begun: at, Moved: at, State: json.RawMessage(`{"a":1}`)}
	add(r.key(), r)
	add(keyBegun, map[string]record{"uid": r, "other": r})
	add(loopKey(limit.BreakerKey{Workload: "uid", Strategy: "A", Node: "worker-7"}), WorkloadBreaker{
		BreakerKey: limit.BreakerKey{Workload: "uid", Strategy: "A", Node: "worker-7"}, BreakerRecord: limit.BreakerRecord{Returns: 3}, Until: at,
	})
	add(keyStorm, stormRecord{Conditions: []StormCondition{{Reason: schemas.ReasonStormNodes, Message: "many", Since: at}}})
	f.Add(keyMove, []byte(`{"intent":null,"state":null,"cause":{"Data":7}}`))
	f.Add(keyLoop+"\x00", []byte(`{"returns":-1,"Returns":9}`))
	f.Add("what", []byte(`{`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		entries := map[string][]byte{key: value}
		moves, loops, storm, bad := readLedger(entries)
		if n := len(moves) + len(loops) + len(bad); key != keyBegun && (n > 1 || len(bad) > 0 && key != keyStorm && n != 1) {
			t.Fatalf("one entry was read as the moves %+v, the loops %+v and the errors %v", moves, loops, bad)
		}
		seen, _ := ReadLedger(entries)
		if len(seen.Moves) != len(moves) || len(seen.Loops) > len(loops) {
			t.Errorf("people see %+v of the moves %+v and the loops %+v", seen, moves, loops)
		}
		if len(bad) > 0 {
			return
		}
		for _, m := range moves {
			again(t, m.key(), m)
		}
		for _, l := range loops {
			again(t, key, l)
		}
		if key == keyStorm {
			again(t, key, storm)
		}
	})
}

// again writes an entry, reads it, and writes it again. Both writes must be equal.
func again[E any](t *testing.T, key string, entry E) {
	t.Helper()
	first, err := json.Marshal(entry)
	if err != nil {
		t.Fatalf("read %+v, which cannot be written: %v", entry, err)
	}
	var read any
	moves, loops, storm, bad := readLedger(map[string][]byte{key: first})
	switch {
	case len(bad) > 0:
		t.Fatalf("%s cannot be read again: %v", first, bad)
	case len(moves) > 0:
		read = moves[0]
	case len(loops) > 0:
		read = loops[0]
	default:
		read = storm
	}
	if second, err := json.Marshal(read); err != nil || !bytes.Equal(first, second) {
		t.Errorf("%s was read as %s, %v", first, second, err)
	}
}

// For any intents message, the message must be invalid, or each intent must name one possible pod and expire within the
// longest time.
func FuzzMessage(f *testing.F) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	a, _ := answerTo("A", 7, "1", "2")
	for i := range a.Intents {
		a.Intents[i].Expires = at.Add(time.Minute)
	}
	data := expect.ToJSON(f, a)
	f.Add(a.Channel(), data)
	f.Add("rehome.intents.A.default.maintenance.m", []byte(`{"profile":"default","strategy":"A","scope":{"kind":"maintenance","key":"m"},"intents":[null]}`))
	f.Add("", []byte(`{"intents":[{"id":"1","pod":{"namespace":"..","name":"*","uid":"1"},"node":">","expires":"9999-01-01T00:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, channel string, data []byte) {
		e := schemas.Event{ID: "1", Type: schemas.IntentsType, Channel: channel, Data: data, Time: at}
		a, err := readMessage(e, at)
		if err != nil {
			if !isInvalid(err) {
				t.Errorf("the error is not ErrInvalid: %v", err)
			}
			return
		}
		pods := map[types.UID]bool{}
		for _, i := range a.Intents {
			if i.ID == "" || i.Node == "" || i.Pod.UID == "" || pods[i.Pod.UID] || i.Expires.After(at.Add(longestIntent)) {
				t.Errorf("intent %+v was accepted at %v", i, at)
			}
			pods[i.Pod.UID] = true
		}
	})
}
