package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// outsideScope has the fields of a scope that the functions of these scenes read. They use the contract, but no code of Rehome.
type outsideScope struct {
	Kind, Key, Profile, Strategy string
	Args                         struct{ Label string }
	Node                         struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct{ Taints []outsideTaint }
	}
	Pods []outsidePod
}

type outsideTaint struct{ Key string }

type outsidePod struct {
	Pod struct {
		Metadata struct{ Namespace, Name, UID string }
		Spec     struct{ NodeName string }
	}
	Protected []any
}

// outsideMove is an intent in the form that a function writes.
type outsideMove struct {
	Pod    map[string]string `json:"pod"`
	Node   string            `json:"node"`
	Reason string            `json:"reason"`
}

func (p outsidePod) move(reason string) outsideMove {
	m := p.Pod.Metadata
	return outsideMove{map[string]string{"namespace": m.Namespace, "name": m.Name, "uid": m.UID}, p.Pod.Spec.NodeName, reason}
}

// outsideAnswer returns the complete answer to a scope: the headers and the body of an event in binary mode.
func outsideAnswer(id string, body []byte, decide func(outsideScope) []outsideMove) (headers map[string]string, answer []byte, err error) {
	var s outsideScope
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, nil, err
	}
	answer, err = json.Marshal(map[string]any{
		"profile": s.Profile, "strategy": s.Strategy, "intents": decide(s),
		"scope": map[string]string{"kind": s.Kind, "key": s.Key, "event": id},
	})
	return map[string]string{
		"ce-specversion": "1.0", "ce-id": "answer-" + id, "ce-source": "/outside", "ce-type": "dev.rehome.intents.v1",
	}, answer, err
}

// write sends an answer of [outsideAnswer].
func write(w http.ResponseWriter, headers map[string]string, answer []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// overHTTP serves a function, and returns its URL.
func overHTTP(t *testing.T, decide func(outsideScope) []outsideMove) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		headers, answer, err := outsideAnswer(r.Header.Get("ce-id"), body, decide)
		write(w, headers, answer, err)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// overNATS answers requests on a subject.
func overNATS(
	t *testing.T, servers *natsServers, subject string, decide func(outsideScope) []outsideMove, options ...nats.Option,
) {
	t.Helper()
	nc, err := nats.Connect(servers.url(), options...)
	expect.Must(t, err)
	t.Cleanup(nc.Close)
	if _, err = nc.Subscribe(subject, func(m *nats.Msg) {
		headers, answer, err := outsideAnswer(m.Header.Get("ce-id"), m.Data, decide)
		reply := nats.NewMsg(m.Reply)
		reply.Data = answer
		for name, value := range headers {
			reply.Header.Set(name, value)
		}
		if err != nil {
			reply.Header.Set("Rehome-Error", err.Error())
		}
		if err := m.RespondMsg(reply); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// buried waits until the newest of some dead letters has the words in its error.
func buried(t *testing.T, b *bus.Bus, which bus.DeadQuery, words string) {
	t.Helper()
	expect.EventuallyWithState(t, fmt.Sprintf("there is a dead letter of %+v", which), func() (bool, string) {
		list, err := b.DeadNumbers(t.Context(), which)
		if err != nil || len(list) == 0 {
			return false, fmt.Sprint(err)
		}
		d, err := b.DeadLetter(t.Context(), list[len(list)-1])
		return err == nil && strings.Contains(d.Error, words), d.Error
	})
}

func TestExternalBuiltInStrategy(t *testing.T) {
	const strategy = "RemovePodsViolatingNodeTaints"
	s := newScene(t, 2)
	s.deployment("api", 3, preferring(s.nodes[0]))
	address := expect.Value(s.t, program.FreeAddress)
	served := s.start([]string{"serve", strategy, "--address", address})
	served.says("serving")
	dir, file := filetest.ShortDir(t), s.policy()
	p := s.rehome(file, dir)
	p.evaluated(s)
	elsewhere, err := os.ReadFile(s.policy("functions: [{name: " + strategy + ", http: {url: http://" + address + "/}}]"))
	s.t.Must(err)
	s.t.Must(os.WriteFile(file, elsewhere, 0o600))
	p.says("policy changed")
	events := record(t, at(dir))
	before := s.pods(s.nodes[0])

	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	s.evictedOnce(before)
	sources := map[string]bool{} // of answers that want to move a pod
	for _, e := range events.all() {
		if answer, err := schemas.Decode[schemas.Intents](e); err == nil && len(answer.Intents) > 0 {
			sources[e.Source] = true
		}
	}
	expect.Equal(t, "sources of answers", sources, map[string]bool{"/clusters/" + s.namespace + "/dispatcher/" + strategy: true})
}

func TestLyingFunction(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 2, preferring(s.nodes[0]))
	s.create(s.nodes[1], "guarded", nil) // it has no controller, so it is protected
	var mu sync.Mutex
	stolen := outsidePod{} // a pod of the first node
	lies := func(scope outsideScope) []outsideMove {
		mu.Lock()
		defer mu.Unlock()
		switch scope.Key {
		case s.nodes[0]:
			for _, p := range scope.Pods {
				if p.Pod.Metadata.Namespace == s.namespace {
					stolen = p
				}
			}
			return []outsideMove{}
		case s.nodes[1]:
			for _, p := range scope.Pods {
				if p.Pod.Metadata.Name == "guarded" && scope.Strategy == "Breaker" {
					return []outsideMove{p.move("nobody needs it")}
				}
			}
		}
		return []outsideMove{stolen.move("I want it")}
	}
	dir := filetest.ShortDir(t)
	url := overHTTP(t, lies)
	entry := "- {name: %s, scope: node, wakes: [node.labels], http: {url: " + url + "}}"
	p := s.rehome(s.profiles([]string{`  - name: default
    pluginConfig: [{name: Thief}, {name: Breaker}]
    plugins: {deschedule: {enabled: [Thief, Breaker]}}`},
		"functions:", fmt.Sprintf(entry, "Thief"), fmt.Sprintf(entry, "Breaker")), dir)
	before := [2]map[types.UID]string{s.pods(s.nodes[0]), s.pods(s.nodes[1])}
	p.eventually("the thief knows what to steal", func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return stolen.Pod.Metadata.UID != "", ""
	})
	s.label(s.nodes[1], "changed", "true")

	b := bustest.Connect(t, at(dir))
	for strategy, why := range map[string]string{"Thief": "is not in the scope", "Breaker": "is protected: "} {
		buried(t, b, bus.DeadQuery{Stream: bus.StreamScopes, By: strategy}, why)
	}
	after := [2]map[types.UID]string{s.pods(s.nodes[0]), s.pods(s.nodes[1])}
	if !maps.Equal(after[0], before[0]) || !maps.Equal(after[1], before[1]) {
		t.Errorf("pods %v, want %v as before", after, before)
	}
	if moved := s.evictions(); len(moved) > 0 {
		t.Errorf("evicted %v, want none", moved)
	}
	_, metrics := p.Get("metrics")
	for _, strategy := range []string{"Thief", "Breaker"} {
		if line := `rehome_dispatcher_requests_total{result="wrong",strategy="` + strategy + `"}`; !bytes.Contains([]byte(metrics), []byte(line)) {
			t.Errorf("the metrics have no line %s", line)
		}
	}
}
