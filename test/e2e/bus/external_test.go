package bus

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
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// externalScope has the fields of a scope that the functions of these scenes read. They use the contract, but no code of Rehome.
type externalScope struct {
	Kind, Key, Profile, Strategy string
	Args                         struct{ Label string }
	Node                         struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct{ Taints []externalTaint }
	}
	Pods []externalPod
}

type externalTaint struct{ Key string }

type externalPod struct {
	Pod struct {
		Metadata struct{ Namespace, Name, UID string }
		Spec     struct{ NodeName string }
	}
	Protected []any
}

// externalMove is an intent in the form that a function writes.
type externalMove struct {
	Pod    map[string]string `json:"pod"`
	Node   string            `json:"node"`
	Reason string            `json:"reason"`
}

func (p externalPod) move(reason string) externalMove {
	m := p.Pod.Metadata
	return externalMove{map[string]string{"namespace": m.Namespace, "name": m.Name, "uid": m.UID}, p.Pod.Spec.NodeName, reason}
}

// externalAnswer returns the complete answer to a scope: the headers and the body of an event in binary mode.
func externalAnswer(id string, body []byte, decide func(externalScope) []externalMove) (headers map[string]string, answer []byte, err error) {
	var s externalScope
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

// writeAnswer sends an answer of [outsideAnswer].
func writeAnswer(w http.ResponseWriter, headers map[string]string, answer []byte, err error) {
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
func overHTTP(t *testing.T, decide func(externalScope) []externalMove) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		headers, answer, err := externalAnswer(r.Header.Get("ce-id"), body, decide)
		writeAnswer(w, headers, answer, err)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// overNATS answers requests on a subject.
func overNATS(
	t *testing.T, servers *scene.NATSServers, subject string, decide func(externalScope) []externalMove, options ...nats.Option,
) {
	t.Helper()
	nc, err := nats.Connect(servers.URL(), options...)
	expect.Must(t, err)
	t.Cleanup(nc.Close)
	if _, err = nc.Subscribe(subject, func(m *nats.Msg) {
		headers, answer, err := externalAnswer(m.Header.Get("ce-id"), m.Data, decide)
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

// waitDeadLetter waits until the newest of some dead letters has the words in its error.
func waitDeadLetter(t *testing.T, b *bus.Bus, which bus.DeadQuery, words string) {
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
	s := scene.New(t, 2)
	s.AddDeployment("api", 3, scene.PreferNode(s.Nodes[0]))
	address := expect.Value(s.T, program.FreeAddress)
	served := s.Start([]string{"serve", strategy, "--address", address})
	served.WaitLog("serving")
	dir, file := filetest.ShortDir(t), s.Policy()
	p := s.StartRun(file, dir)
	p.WaitEvaluated(s)
	elsewhere, err := os.ReadFile(s.Policy("functions: [{name: " + strategy + ", http: {url: http://" + address + "/}}]"))
	s.T.Must(err)
	s.T.Must(os.WriteFile(file, elsewhere, 0o600))
	p.WaitLog("policy changed")
	events := scene.Record(t, scene.BusIn(dir))
	before := s.PodsOn(s.Nodes[0])

	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	s.CheckEvictedOnce(before)
	sources := map[string]bool{} // of answers that want to move a pod
	for _, e := range events.All() {
		if answer, err := schemas.Decode[schemas.Intents](e); err == nil && len(answer.Intents) > 0 {
			sources[e.Source] = true
		}
	}
	expect.Equal(t, "sources of answers", sources, map[string]bool{"/clusters/" + s.Namespace + "/dispatcher/" + strategy: true})
}

func TestLyingFunction(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 2, scene.PreferNode(s.Nodes[0]))
	s.CreatePod("guarded", s.Nodes[1], nil) // it has no controller, so it is protected
	var mu sync.Mutex
	stolen := externalPod{} // a pod of the first node
	lies := func(scope externalScope) []externalMove {
		mu.Lock()
		defer mu.Unlock()
		switch scope.Key {
		case s.Nodes[0]:
			for _, p := range scope.Pods {
				if p.Pod.Metadata.Namespace == s.Namespace {
					stolen = p
				}
			}
			return []externalMove{}
		case s.Nodes[1]:
			for _, p := range scope.Pods {
				if p.Pod.Metadata.Name == "guarded" && scope.Strategy == "Breaker" {
					return []externalMove{p.move("nobody needs it")}
				}
			}
		}
		return []externalMove{stolen.move("I want it")}
	}
	dir := filetest.ShortDir(t)
	url := overHTTP(t, lies)
	entry := "- {name: %s, scope: node, wakes: [node.labels], http: {url: " + url + "}}"
	p := s.StartRun(s.ProfilesPolicy([]string{`  - name: default
    pluginConfig: [{name: Thief}, {name: Breaker}]
    plugins: {deschedule: {enabled: [Thief, Breaker]}}`},
		"functions:", fmt.Sprintf(entry, "Thief"), fmt.Sprintf(entry, "Breaker")), dir)
	before := [2]map[types.UID]string{s.PodsOn(s.Nodes[0]), s.PodsOn(s.Nodes[1])}
	p.Eventually("the thief knows what to steal", func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return stolen.Pod.Metadata.UID != "", ""
	})
	s.LabelNode(s.Nodes[1], "changed", "true")

	b := bustest.Connect(t, scene.BusIn(dir))
	for strategy, why := range map[string]string{"Thief": "is not in the scope", "Breaker": "is protected: "} {
		waitDeadLetter(t, b, bus.DeadQuery{Stream: bus.StreamScopes, By: strategy}, why)
	}
	after := [2]map[types.UID]string{s.PodsOn(s.Nodes[0]), s.PodsOn(s.Nodes[1])}
	if !maps.Equal(after[0], before[0]) || !maps.Equal(after[1], before[1]) {
		t.Errorf("pods %v, want %v as before", after, before)
	}
	if moved := s.Evictions(); len(moved) > 0 {
		t.Errorf("evicted %v, want none", moved)
	}
	_, metrics := p.Get("metrics")
	for _, strategy := range []string{"Thief", "Breaker"} {
		if line := `rehome_dispatcher_requests_total{result="wrong",strategy="` + strategy + `"}`; !bytes.Contains([]byte(metrics), []byte(line)) {
			t.Errorf("the metrics have no line %s", line)
		}
	}
}
