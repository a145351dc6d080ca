package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	honest = "RemovePodsViolatingNodeTaints"
	// rounds is how often the honest work is done without and, at least, with others that are hostile: enough for medians.
	rounds = 11
	// floods is how many requests one sender sends, in so many equal bursts, one after another pause.
	floods = 100_000
	bursts = 100
	pauses = 200 * time.Millisecond
)

// hostility is everything that others do to a scene whose first node is worked on, on whose second node the pods go, and
// whose third node has a Deployment, victim, and a pod, guarded, that nothing would replace.
type hostility struct {
	*scene
	nc    *nats.Conn
	js    jetstream.JetStream
	bomb  []byte // small, and large when it is unpacked
	round int

	mu       sync.Mutex
	verdicts map[string]int // on forged intents, by what they say
	receipts map[string]int // to the flooder
}

func newHostility(s *scene, servers *natsServers) *hostility {
	s.t.Helper()
	nc, err := nats.Connect(servers.url())
	s.must(err)
	s.t.Cleanup(nc.Close)
	h := &hostility{scene: s, nc: nc, verdicts: map[string]int{}, receipts: map[string]int{}}
	h.js, err = jetstream.New(nc)
	s.must(err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(make([]byte, 70<<20)) // more than anybody unpacks
	s.must(err)
	s.must(z.Close())
	h.bomb = packed.Bytes()
	_, err = nc.Subscribe("rehome.*.>", h.see)
	s.must(err)
	s.must(nc.Flush())
	return h
}

// see counts verdicts on forged intents, and receipts.
func (h *hostility) see(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m.Header.Get("ce-type") {
	case schemas.VerdictType:
		var v schemas.Verdict
		if json.Unmarshal(m.Data, &v) == nil && strings.HasPrefix(v.Intent.ID, "forged.") && m.Header.Get("ce-source") != "/stranger" {
			h.verdicts[fmt.Sprint(v.Outcome, " ", v.Reason)]++
		}
	case "dev.rehome.receipt.v1":
		var r struct{ Sender, State, Reason string }
		if json.Unmarshal(m.Data, &r) == nil && r.Sender == "flood" && m.Header.Get("ce-source") != "/stranger" {
			h.receipts[r.State+" "+r.Reason]++
		}
	}
}

// functions serves functions that do not do what they should, and returns the entries of the policy that ask them.
func (h *hostility) functions() []string {
	hanging, over := make(chan struct{}), sync.Once{}
	answer := func(name string, f http.HandlerFunc) string {
		server := httptest.NewServer(f)
		h.t.Cleanup(func() {
			over.Do(func() { close(hanging) })
			server.Close()
		})
		return "- {name: " + name + ", scope: node, wakes: [node.taints, node.labels], http: {url: " + server.URL + ", timeout: 1s}}"
	}
	return []string{
		"functions:",
		answer("Hangs", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-hanging:
			case <-r.Context().Done():
			}
		}),
		answer("Babbles", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("ce-specversion", "1.0")
			_, _ = w.Write([]byte("\x00{moin"))
		}),
		answer("Steals", func(w http.ResponseWriter, r *http.Request) { h.steal(w, r) }),
	}
}

// steal answers that the victims should move, whatever it is asked about.
func (h *hostility) steal(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	headers, answer, err := outsideAnswer(r.Header.Get("ce-id"), body, func(scope outsideScope) []outsideMove {
		moves := []outsideMove{}
		for _, p := range scope.Pods { // of its scope it names those that are protected
			if len(p.Protected) > 0 {
				moves = append(moves, p.move("I want it"))
			}
		}
		victim := outsidePod{}
		victim.Pod.Metadata.Namespace, victim.Pod.Metadata.Name, victim.Pod.Metadata.UID = h.namespace, "victim", "1"
		victim.Pod.Spec.NodeName = h.nodes[2]
		return append(moves, victim.move("I want it, too"))
	})
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

// publish stores what anybody might store. It is refused when it is larger than any message may be, or the stream is full.
func (h *hostility) publish(channel string, header nats.Header, body []byte) {
	_, _ = h.js.PublishMsg(h.t.Context(), &nats.Msg{Subject: channel, Header: header, Data: body})
}

// forged is an event of somebody else with the data that is given.
func forged(eventType string) nats.Header { return header("type", eventType) }

// forgeIntents publishes answers that nobody gave.
func (h *hostility) forgeIntents(victims map[types.UID]string, guarded types.UID) {
	answer := func(channel, strategy, key string, intents ...schemas.Intent) {
		a := schemas.Intents{
			Profile: "default", Strategy: strategy, Intents: intents,
			Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: key, Event: "forged", Sequence: 1 << 60, Since: time.Now()},
		}
		data, err := json.Marshal(a)
		h.must(err)
		if channel == "" {
			channel = a.Channel()
		}
		h.publish(channel, forged(schemas.IntentsType), data)
	}
	intent := func(name string, uid types.UID, node string) schemas.Intent {
		return schemas.Intent{
			ID: fmt.Sprintf("forged.%d.%s.%s", h.round, uid, node), Node: node, Reason: "because",
			Pod: schemas.PodRef{Namespace: h.namespace, Name: name, UID: uid}, Expires: time.Now().Add(time.Minute),
		}
	}
	var here, elsewhere []schemas.Intent // the victims where they are, and where they are not
	for uid, name := range victims {
		here = append(here, intent(name, uid, h.nodes[2]))
		elsewhere = append(elsewhere, intent(name, uid, h.nodes[1]))
	}
	of := func(strategy string) string {
		return "rehome.intents." + strategy + ".default.node." + schemas.Token(h.nodes[2])
	}
	answer(of("Steals"), honest, h.nodes[2], here...)           // on the subject of another strategy
	answer("rehome.intents.forged.a.b.c", honest, "x", here...) // of no scope
	answer("", honest, h.nodes[1], here...)                     // pods outside of the scope, as they are
	answer("", honest, h.nodes[1], elsewhere...)                // and as if they were in it
	answer("", "NoSuch", h.nodes[2], here...)
	answer("", "Babbles", h.nodes[2], intent("guarded", guarded, h.nodes[2]), intent("guarded", "another", h.nodes[2]))
}

// forgeVerdicts publishes verdicts that nobody gave, also on pods that are about to be moved.
func (h *hostility) forgeVerdicts(pods map[types.UID]string) {
	for uid, name := range pods {
		for _, outcome := range []schemas.Outcome{schemas.Evicted, schemas.Settled, schemas.Deferred, schemas.Rejected, "moved"} {
			v := schemas.Verdict{
				Outcome: outcome, Reason: schemas.ReasonCameBack, Profile: "default", Strategy: honest,
				Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: h.nodes[0], Event: "forged", Since: time.Now()},
				Intent: schemas.Intent{ID: "forged." + name, Pod: schemas.PodRef{Namespace: h.namespace, Name: name, UID: uid}, Node: h.nodes[0]},
			}
			data, err := json.Marshal(v)
			h.must(err)
			h.publish(v.Channel(), forged(schemas.VerdictType), data)
		}
	}
}

// malform publishes what is no event, or too much of it, on every subject.
func (h *hostility) malform() {
	for noun, eventType := range map[string]string{
		"delta.node.taints": schemas.DeltaType, "scope." + honest + ".default.node": schemas.ScopeType,
		"intents." + honest + ".default.node": schemas.IntentsType, "verdict.evicted." + honest + ".a": schemas.VerdictType,
		"request.flood": "dev.rehome.request.v1", "receipt.flood": "dev.rehome.receipt.v1", "dead." + bus.StreamScopes: "",
	} {
		channel := fmt.Sprintf("rehome.%s.malformed-%d-", noun, h.round)
		packed := forged(eventType)
		packed["Content-Encoding"] = []string{"gzip"}
		h.publish(channel+"garbage", nil, []byte("\x00\x01"))
		h.publish(channel+"shapeless", forged(eventType), []byte(`[[[7]]]`))
		h.publish(channel+"large", forged(eventType), bytes.Repeat([]byte("["), 1_000_000))
		h.publish(channel+"bomb", packed, h.bomb)
		h.publish(channel+"beyond", forged(eventType), make([]byte, 9<<20))
	}
}

// rage does all of it but to forge verdicts, until the last request is sent.
func (h *hostility) rage(victims map[types.UID]string, guarded types.UID) {
	pause := time.NewTicker(pauses)
	defer pause.Stop()
	for h.round = range bursts {
		h.flood(floods / bursts)
		if h.round%5 == 0 {
			h.forgeIntents(victims, guarded)
		}
		if h.round%10 == 0 {
			h.malform()
		}
		<-pause.C
	}
}

// flood sends requests for the victims to be moved, by a sender who may ask for pods of another namespace only.
func (h *hostility) flood(n int) {
	for i := range n {
		name := fmt.Sprintf("r-%d-%d", h.round, i)
		m := &nats.Msg{Subject: "rehome.request.flood." + name, Header: forged("dev.rehome.request.v1")}
		m.Header["ce-id"] = []string{name}
		m.Data = fmt.Appendf(nil, `{"sender":"flood","name":%q,"action":"deschedule","reason":"now","target":{"workload":{"kind":"Deployment",`+
			`"namespace":%q,"name":"victim"}}}`, name, h.namespace)
		h.must(h.nc.PublishMsg(m))
	}
}

// works taints the first node, waits until the API server has evicted its pods, and returns how long that took.
func (s *scene) works(meanwhile func(map[types.UID]string)) (took time.Duration, moved map[types.UID]string) {
	s.t.Helper()
	before := s.pods(s.nodes[0])
	from := len(s.evictions())
	var doing sync.WaitGroup
	doing.Go(func() { meanwhile(before) })
	tainted := time.Now()
	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	got := s.evicted(from, len(before))
	doing.Wait()
	s.ready("api")
	s.untaint(s.nodes[0])
	s.restart("api")
	if !reflect.DeepEqual(uids(got), before) || len(got) != 4 {
		s.t.Fatalf("evicted %v, want %v", got, before)
	}
	return got[len(got)-1].time.Sub(tainted), before
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func TestOthersWhoAreHostileMoveNothingAndDelayNobody(t *testing.T) {
	servers := natsCluster(t, 1)
	s := newScene(t, 3)
	s.deployment("api", 4, preferring(s.nodes[0]), away(s.nodes[2]))
	s.deployment("victim", 3, on(s.nodes[2]))
	s.pod("guarded", s.nodes[2], nil)
	victims := s.pods(s.nodes[2])
	var guarded types.UID
	maps.DeleteFunc(victims, func(uid types.UID, name string) bool {
		if name == "guarded" {
			guarded = uid
		}
		return name == "guarded"
	})
	h := newHostility(s, servers)
	s.setUp(servers)
	more := append(h.functions(), "requests: {senders: [{name: flood, namespaces: [elsewhere], perMinute: 60, open: 5}]}",
		"brakes: {storm: {nodes: 0%}, loop: {delay: 0s}}") // the pods come back each round, since the scene wants them to
	file := s.profiles([]string{`  - name: default
    pluginConfig: [{name: ` + honest + `}, {name: Hangs}, {name: Babbles}, {name: Steals}]
    plugins: {deschedule: {enabled: [` + honest + `, Hangs, Babbles, Steals]}}`}, more...)
	processes := map[string]*process{}
	for _, role := range []string{"watcher", "functions", "dispatcher", "actuator"} {
		arguments := []string{role}
		if role != "functions" {
			arguments = append(arguments, "--policy", file)
		}
		processes[role] = s.start(arguments, servers.variable())
		processes[role].waitReady()
	}

	all := map[types.UID]string{}
	var before, during []time.Duration
	for range rounds {
		took, moved := s.works(func(map[types.UID]string) {})
		before = append(before, took)
		maps.Copy(all, moved)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.rage(victims, guarded)
	}()
	for raging := true; raging || len(during) < rounds; {
		took, moved := s.works(h.forgeVerdicts)
		during = append(during, took)
		maps.Copy(all, moved)
		select {
		case <-over:
			raging = false
		default:
		}
	}
	a, b := median(before), median(during)
	t.Logf("until the last of four pods was evicted: before %v, median %v; during %v, median %v", before, a, during, b)
	if b > 2*a {
		t.Errorf("a drain takes %v, and %v while others are hostile; want at most twice as long", a, b)
	}
	s.evictedOnce(all)
	for uid, name := range s.pods(s.nodes[2]) {
		if victims[uid] != name && uid != guarded {
			t.Errorf("%s is new on %s", name, s.nodes[2])
		}
	}
	h.leftTraces(processes)
}

// leftTraces checks that somebody who looks finds out about each kind of hostility.
func (h *hostility) leftTraces(processes map[string]*process) {
	h.t.Helper()
	for _, want := range []string{"rejected PodMoved", "rejected Protected", "rejected PodGone", "rejected ProfileUnknown"} {
		eventually(h.t, "a forged intent is "+want, func() (bool, string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.verdicts[want] > 0, fmt.Sprint(h.verdicts)
		})
	}
	h.mu.Lock()
	if h.receipts["rejected NotAllowed"] == 0 || h.receipts["rejected TooManyRequests"] == 0 ||
		h.receipts["accepted Accepted"] > 0 || h.verdicts["evicted EvictionAccepted"] > 0 {
		h.t.Errorf("receipts for the flood %v, verdicts on forged intents %v", h.receipts, h.verdicts)
	}
	h.t.Logf("receipts for %d requests: %v; verdicts on forged intents: %v", floods, h.receipts, h.verdicts)
	h.mu.Unlock()
	dead := stranger{h.t, h.js}.deadLetters(1)
	for _, part := range []string{
		"rehome.intents.Steals.default.node.", "rehome.intents.forged.a.b.c", "rehome.intents." + honest + ".default.node." + schemas.Token(h.nodes[1]),
		"rehome.scope." + honest + ".default.node.malformed-0-garbage", "rehome.scope." + honest + ".default.node.malformed-0-bomb",
		"rehome.intents." + honest + ".default.node.malformed-0-large", "rehome.intents." + honest + ".default.node.malformed-0-bomb",
		"rehome.scope.Babbles.default.node.", "rehome.scope.Steals.default.node.",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(dead)), func(on string) bool { return strings.HasPrefix(on, part) }) {
			h.t.Errorf("there is no dead letter of %s among those of %q", part, slices.Sorted(maps.Keys(dead)))
		}
	}
	processes["dispatcher"].says("a function does not answer, its scopes wait")
	processes["watcher"].says("verdict is not readable")
}

// away keeps the pods off a node.
func away(node string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
			}}}},
		}
	}
}
