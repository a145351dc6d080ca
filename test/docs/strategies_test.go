package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// ownStrategy is an example of a strategy of one's own.
type ownStrategy struct {
	folder, name string
	start        func(t *testing.T) program.Example
	// concern changes a scope so that the strategy moves the pod cart-0.
	concern func(*schemas.NodeScope)
	reason  string
}

func ownStrategies() []ownStrategy {
	return []ownStrategy{{
		folder: "retiring", name: "LeaveRetiringNodes", reason: "its node is taken away on 2026-11-27",
		start: func(t *testing.T) program.Example {
			t.Helper()
			e, err := program.GoExample("retiring")
			expect.Must(t, err)
			return e
		},
		concern: func(s *schemas.NodeScope) {
			s.Node.Labels["example.com/retiring"] = "2026-11-27" // a week after the time of the scope
			s.Pods = only(s.Pods, "cart-0", "kube-proxy-lm4tz")
		},
	}, {
		folder: "avoidzone", name: "AvoidZone", reason: "avoids the zone eu-west-1b",
		start: func(t *testing.T) program.Example {
			t.Helper()
			e, err := program.PythonExample("avoidzone/avoid_zone.py")
			expect.Must(t, err)
			return e
		},
		concern: func(s *schemas.NodeScope) {
			for i, zone := range []string{"eu-west-1b", "eu-west-1b", "eu-west-1a"} { // the first pod is protected
				s.Pods[i].Pod.Annotations = map[string]string{"example.com/avoid-zone": zone}
			}
		},
	}}
}

// only keeps the pods of these names.
func only(pods []schemas.ScopedPod, names ...string) (kept []schemas.ScopedPod) {
	for _, p := range pods {
		for _, name := range names {
			if p.Pod.Name == name {
				kept = append(kept, p)
			}
		}
	}
	return kept
}

// serve starts the example and returns its URL. It runs until the test ends.
func (s ownStrategy) serve(t *testing.T) string {
	t.Helper()
	address := expect.Value(t, program.FreeAddress)
	p, err := s.start(t).Start([]string{"ADDRESS=" + address})
	expect.Must(t, err)
	programtest.End(t, p, s.name)
	programtest.Answers(t, p, "http://"+address)
	return "http://" + address + "/"
}

// asked is the published example of the scope of a node, for another strategy. change may change it.
func (s ownStrategy) asked(t *testing.T, change ...func(*schemas.NodeScope)) schemas.Event {
	t.Helper()
	e := schematest.ExampleOf(t, "scope").Event
	scope := schematest.Decode[schemas.NodeScope](t, e)
	scope.Strategy, scope.Args = s.name, nil
	for _, c := range change {
		c(&scope)
	}
	e.Data = expect.ToJSON(t, scope)
	return e
}

// expected returns the answer to a scope of s, with or without its intent, and without random values and times.
func (s ownStrategy) expected(scope schemas.Event, moves bool) (schemas.Event, schemas.Intents) {
	since := time.Date(2026, 11, 20, 9, 30, 0, 112934000, time.UTC)
	now := time.Date(2026, 11, 20, 9, 30, 0, 131207000, time.UTC)
	answer := schemas.Intents{
		Profile: "default", Strategy: s.name, Intents: []schemas.Intent{},
		Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-7", Event: scope.ID, Since: since, Now: now},
	}
	if moves {
		const uid = "f3a7c2d4-91be-4c0d-b6d0-7e4a5b8c1e32"
		answer.Intents = []schemas.Intent{{
			ID: scope.ID + "." + uid, Pod: schemas.PodRef{Namespace: "shop", Name: "cart-0", UID: uid}, Node: "worker-7", Reason: s.reason,
		}}
	}
	return schemas.Event{
		Source: "/examples/" + s.folder, Type: schemas.IntentsType, Subject: "node/worker-7",
		CorrelationID: scope.CorrelationID, CausationID: scope.ID, TraceParent: scope.TraceParent[:35],
	}, answer
}

func TestExampleStrategiesDecide(t *testing.T) {
	for _, s := range ownStrategies() {
		t.Run(s.folder, func(t *testing.T) {
			t.Parallel()
			client, err := post.New(post.Config{URL: s.serve(t)})
			expect.Must(t, err)
			defer client.Close()
			other := func(args string) func(*schemas.NodeScope) {
				return func(scope *schemas.NodeScope) { s.concern(scope); scope.Args = json.RawMessage(args) }
			}
			for name, c := range map[string]struct {
				scope schemas.Event
				moves bool
			}{
				"nothing concerns it": {s.asked(t), false},
				"one move":            {s.asked(t, s.concern), true},
				"arguments say otherwise": {s.asked(t, other(
					`{"label":"example.com/other","annotation":"example.com/other"}`)), false},
				"there is no pod":                    {s.asked(t, s.concern, func(scope *schemas.NodeScope) { scope.Pods = []schemas.ScopedPod{} }), false},
				"the node has no label":              {s.asked(t, s.concern, func(scope *schemas.NodeScope) { scope.Node.Labels = nil }), false},
				"the subject is no ASCII and spaced": {spaced(s.asked(t, s.concern)), true},
			} {
				reply, has, err := client.Ask(t.Context(), c.scope)
				if err != nil || !has {
					t.Errorf("%s: answered %v, %v", name, has, err)
					continue
				}
				wantEvent, want := s.expected(c.scope, c.moves)
				wantEvent.Subject = c.scope.Subject
				if wantEvent.Subject == "node/worker-7" {
					schematest.Check(t, reply)
				} else {
					reply.Subject = wantEvent.Subject // the Go package names the node, the other programs copy the subject of the scope
				}
				got, err := schemas.Decode[schemas.Intents](reply)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				for i := range got.Intents {
					if got.Intents[i].Expires.IsZero() {
						t.Errorf("%s: intents[%d] does not expire", name, i)
					}
					got.Intents[i].Expires = time.Time{}
				}
				reply.ID, reply.Time, reply.Data, reply.TraceParent = "", time.Time{}, nil, reply.TraceParent[:35]
				if !reflect.DeepEqual(reply, wantEvent) || !reflect.DeepEqual(got, want) {
					t.Errorf("%s:\ngot  %+v %+v\nwant %+v %+v", name, reply, got, wantEvent, want)
				}
			}
		})
	}
}

// spaced gives an event a subject that headers have to encode.
func spaced(e schemas.Event) schemas.Event {
	e.Subject = `node/naïve "x" 100%`
	return e
}

func TestExampleStrategiesRejectOtherScopes(t *testing.T) {
	for _, s := range ownStrategies() {
		t.Run(s.folder, func(t *testing.T) {
			t.Parallel()
			url := s.serve(t)
			right := s.asked(t, s.concern)
			for name, c := range map[string]struct {
				event  schemas.Event
				change func(*http.Request)
				status int
			}{
				"a scope":                   {right, nil, 200},
				"a scope of another kind":   {schematest.ExampleOf(t, "scope-pod").Event, nil, 400},
				"a scope of another one":    {schematest.ExampleOf(t, "scope").Event, nil, 400},
				"an answer":                 {schematest.ExampleOf(t, "intents").Event, nil, 400},
				"data that is not JSON":     {right, body("{"), 400},
				"lists in lists, unclosed":  {right, body(strings.Repeat("[", 100000)), 400},
				"data that is an array":     {right, body("[7]"), 400},
				"pods that are a number":    {right, body(`{"kind":"node","strategy":"` + s.name + `","node":{"metadata":{}},"pods":7}`), 400},
				"no attributes":             {right, func(r *http.Request) { r.Header = http.Header{"Content-Type": {cloudevent.JSON}} }, 400},
				"no id":                     {right, set("Ce-Id", ""), 400},
				"another version":           {right, set("Ce-Specversion", "0.3"), 400},
				"another type of content":   {right, set("Content-Type", "text/xml"), 415},
				"the compressed scope":      {right, set("Content-Encoding", "gzip"), 415},
				"a scope that is too large": {right, body(strings.Repeat(" ", 8<<20) + "{}"), 413},
				"another method":            {right, func(r *http.Request) { r.Method = http.MethodPut }, 405},
			} {
				if got := ask(t, url, c.event, c.change); got.status != c.status || got.text == "" || got.allow != (c.status == 405) {
					t.Errorf("%s: got %+v, want the status %d, a text, and which method is allowed if it was the wrong one", name, got, c.status)
				}
			}
		})
	}
}

func set(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = []string{value} }
}

func body(text string) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	}
}

// refusal is an error of a function.
type refusal struct {
	status int
	text   string
	allow  bool // it says which method it wants
}

// ask posts an event in binary mode after it was changed.
func ask(t *testing.T, url string, e schemas.Event, change func(*http.Request)) refusal {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(e.Data))
	expect.Must(t, err)
	r.Header.Set("Content-Type", cloudevent.JSON)
	if err := cloudevent.WriteAttributes(e, func(name, value string) { r.Header.Set("Ce-"+name, value) }); err != nil {
		t.Fatal(err)
	}
	r.Header.Del("Ce-Datacontenttype")
	if change != nil {
		change(r)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return refusal{text: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	expect.Must(t, err)
	return refusal{response.StatusCode, string(text), response.Header.Get("Allow") == http.MethodPost}
}

func TestExamplePolicies(t *testing.T) {
	for _, s := range ownStrategies() {
		text, err := os.ReadFile(filepath.Join(root, "docs/examples", s.folder, "policy.yaml"))
		expect.Must(t, err)
		p, err := policy.Parse("policy.yaml", text, settings.Strategies())
		if err != nil {
			t.Errorf("%s: %v", s.folder, err)
			continue
		}
		var got []string
		for _, o := range p.Outside {
			got = append(got, fmt.Sprint(o.Strategy.Name, " ", o.Strategy.Scope, " ", o.URL))
		}
		port := map[string]string{"retiring": "8090", "avoidzone": "8091"}[s.folder]
		if want := []string{s.name + " node http://127.0.0.1:" + port + "/"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", s.folder, got, want)
		}
	}
}
