package restart

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// For any annotations of a Deployment and its pod, a move must change the number of replicas only back to the number
// before it, and only the annotations of Rehome, the template annotation of the move, and the deletion cost of the pod.
// It must never use a number that another client wrote.
func FuzzAnnotations(f *testing.F) {
	at := fresh(aCandidate(schemas.MethodSurge)).value()
	f.Add(at, "1", "", "", at, "true", uint8(0), int32(2))
	f.Add(at, "99", `{"annotation":"a","old":null}`, "7", "", "surge", uint8(1), int32(100))
	f.Add("9999-12-31T23:59:59Z", "2147483647", "{", "-9999999999", at, "restart", uint8(2), int32(-2147483648))
	f.Add("", "-1", "null", "\xff", "\xff", "false", uint8(7), int32(0))
	f.Fuzz(func(t *testing.T, restarted, surged, undone, costWas, template, mark string, how uint8, replicas int32) {
		for _, method := range []schemas.Method{schemas.MethodRestart, schemas.MethodSurge} {
			m := begunMove(method)
			d := m.v.Deployment
			d.Annotations = map[string]string{restartedAt: restarted, surgeReplicas: surged, restartUndo: undone, policy.RestartMark: mark}
			d.Spec.Template.Annotations = map[string]string{policy.DefaultRestartAnnotation: template}
			d.Spec.Replicas = &replicas
			m.v.Pod.Annotations = map[string]string{costBefore: costWas}
			if how&1 != 0 {
				m.seen(replicas, replicas, replicas)
			}
			if how&2 != 0 {
				m.givenUp()
			}
			if how&4 != 0 {
				m.leaving()
			}
			step := follow(m.s, m.v)
			if c := step.Change; c != nil {
				if c.Replicas != nil && (*c.Replicas != m.s.Replicas || surged == "" || restarted != m.s.value()) {
					t.Errorf("%s: replicas are set to %d", method, *c.Replicas)
				}
				for key := range c.Annotations {
					if !strings.HasPrefix(key, "rehome.dev/") {
						t.Errorf("%s: the annotation %s is changed", method, key)
					}
				}
				for key := range c.Template {
					if key != policy.DefaultRestartAnnotation {
						t.Errorf("%s: the annotation %s of the template is changed", method, key)
					}
				}
			}
			if step.Cost != nil && step.Cost.Cost != nil && *step.Cost.Cost != cheapest && *step.Cost.Cost != costWas {
				t.Errorf("%s: the deletion cost becomes %s", method, *step.Cost.Cost)
			}
			c := candidate{Pod: m.v.Pod, Deployment: d, Method: method, Policy: m.s.Policy, Now: m.v.Now}
			if no := eligible(c); no != nil && (no.Reason == "" || no.Message == "") {
				t.Errorf("%s: refused without a reason: %+v", method, no)
			}
			if by, takes := takesPart(policy.Restart{Workloads: policy.RestartAnnotated}, mark, ""); takes && (by == "" || !known(mark)) {
				t.Errorf("%s: the mark %q lets the Deployment take part by %q", method, mark, by)
			}
		}
	})
}

// For any ledger state, the method must return an error, or write the next state so that it reads back equal.
func FuzzState(f *testing.F) {
	for _, method := range []schemas.Method{schemas.MethodRestart, schemas.MethodSurge} {
		for _, change := range []func(*situated){func(*situated) {}, (*situated).leaving, (*situated).givenUp} {
			m := begunMove(method)
			change(&m)
			f.Add([]byte(m.s.encode()), uint8(2))
			m.s.Refusal = nil
			f.Add([]byte(m.s.encode()), uint8(0x35))
		}
	}
	f.Add([]byte(`{"phase":"TakingBack","method":"surge","limit":-1}`), uint8(0))
	f.Add([]byte(`{"phase":"Returning","at":"9999-12-31T23:59:59Z","limit":9223372036854775807,"replicas":2147483647}`), uint8(3))
	f.Fuzz(func(t *testing.T, text []byte, seen uint8) {
		s, err := decode(text)
		if err != nil {
			return
		}
		m := begunMove(s.Method)
		m.s = s
		m.seen(int32(seen&3), int32(seen>>2&3), int32(seen>>4&3))
		if m.v.Now = m.v.Now.Add(time.Duration(seen>>6) * time.Hour); seen&1 != 0 {
			m.v.Deployment.Spec.Template.Annotations = nil
		}
		for _, p := range []move.Progress{follow(m.s, m.v).Then, deleted(m.s, m.v), m.s.takeBack(move.Deferred("", "full"), m.v.Now)} {
			if p.State == nil {
				continue
			}
			next, err := decode(p.State)
			if err != nil || !json.Valid(p.State) {
				t.Fatalf("%s is followed by %s, which cannot be read: %v", text, p.State, err)
			}
			if again := next.encode(); string(again) != string(p.State) {
				t.Errorf("%s was read as %s", p.State, again)
			}
		}
	})
}
