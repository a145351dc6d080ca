package bus

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// Uncompressed sizes above the limit of any message, and of a request.
const beyondAll, beyondRequest = 70 << 20, 10 << 20

// attacker runs hostile clients against a scene. The first node of the scene is tainted, the pods move to the second one, and the
// third one has a Deployment, victim, and a pod without an owner, guarded.
type attacker struct {
	*scene.Scene
	nc      *nats.Conn
	js      jetstream.JetStream
	victims map[types.UID]string
	guarded types.UID
	block   int
	bombs   map[int][]byte // by uncompressed size; made once, because that takes time itself

	mu             sync.Mutex
	counted        map[string]bool // verdicts and receipts, by their IDs
	verdicts       map[string]int  // on forged intents, by their content
	receipts       map[string]int  // by sender and content
	withoutReceipt int             // the number of requests without a receipt, as reported to the sender flood
	refused        map[string]int  // refusals of the server, by reason
}

func newAttacker(s *scene.Scene, servers *scene.NATSServers) *attacker {
	s.T.Helper()
	nc, err := nats.Connect(servers.URL())
	s.T.Must(err)
	s.T.Cleanup(nc.Close)
	h := &attacker{
		Scene: s, nc: nc, victims: s.PodsOn(s.Nodes[2]),
		bombs: map[int][]byte{}, counted: map[string]bool{}, verdicts: map[string]int{}, receipts: map[string]int{}, refused: map[string]int{},
	}
	maps.DeleteFunc(h.victims, func(uid types.UID, name string) bool {
		if name == "guarded" {
			h.guarded = uid
		}
		return name == "guarded"
	})
	for _, n := range []int{beyondAll, beyondRequest} {
		h.bombs[n] = h.bomb(n)
	}
	h.js, err = jetstream.New(nc)
	s.T.Must(err)
	_, err = nc.Subscribe("rehome.*.>", h.count)
	s.T.Must(err)
	s.T.Must(nc.Flush())
	return h
}

// bomb returns a small message that decompresses to n bytes.
func (h *attacker) bomb(n int) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(make([]byte, n))
	h.T.Must(err)
	h.T.Must(z.Close())
	return packed.Bytes()
}

// count counts verdicts on forged intents, and receipts.
func (h *attacker) count(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := m.Header.Get("ce-id")
	if m.Header.Get("ce-source") == "/stranger" || h.counted[id] {
		return
	}
	switch m.Header.Get("ce-type") {
	case schemas.VerdictType:
		var v schemas.Verdict
		if json.Unmarshal(m.Data, &v) == nil && strings.HasPrefix(v.Intent.ID, "forged.") {
			h.counted[id] = true
			h.verdicts[fmt.Sprint(v.Outcome, " ", v.Reason)]++
		}
	case schemas.ReceiptType:
		var r schemas.Receipt
		if json.Unmarshal(m.Data, &r) == nil {
			h.counted[id] = true
			h.receipts[fmt.Sprint(r.Sender, " ", r.State, " ", r.Reason)]++
			n := 0
			_, _ = fmt.Sscanf(r.Message[strings.LastIndex(r.Message, ";")+1:], "%d more were rejected without a receipt", &n)
			h.withoutReceipt += n
		}
	}
}

// functions serves misbehaving functions, and returns their entries of the policy.
func (h *attacker) functions() []string {
	hanging, over := make(chan struct{}), sync.Once{}
	answer := func(name string, f http.HandlerFunc) string {
		server := httptest.NewServer(f)
		h.T.Cleanup(func() {
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

// steal answers any scope with intents for the victims.
func (h *attacker) steal(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	headers, answer, err := externalAnswer(r.Header.Get("ce-id"), body, func(scope externalScope) []externalMove {
		moves := []externalMove{}
		for _, p := range scope.Pods { // and for the protected pods of its scope
			if len(p.Protected) > 0 {
				moves = append(moves, p.move("I want it"))
			}
		}
		victim := externalPod{}
		victim.Pod.Metadata.Namespace, victim.Pod.Metadata.Name, victim.Pod.Metadata.UID = h.Namespace, "victim", "1"
		victim.Pod.Spec.NodeName = h.Nodes[2]
		return append(moves, victim.move("I want it, too"))
	})
	writeAnswer(w, headers, answer, err)
}

// publish stores messages that any client could store, and counts refusals of the server.
func (h *attacker) publish(channel string, header nats.Header, body []byte) {
	_, err := h.js.PublishMsg(h.T.Context(), &nats.Msg{Subject: channel, Header: header, Data: body})
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		h.refused["larger than any message"]++
	case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		h.refused["larger than any request"]++
	case err != nil:
		h.T.Errorf("publish on %s: %v", channel, err)
	}
}

// forgedHeader returns the headers of a forged event.
func forgedHeader(eventType string) nats.Header {
	return nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/stranger"}, "ce-type": {eventType}}
}

// forgeAnswer publishes a forged answer.
func (h *attacker) forgeAnswer(channel, strategy, key string, intents ...schemas.Intent) {
	a := schemas.Intents{
		Profile: "default", Strategy: strategy, Intents: intents,
		Scope: schemas.ScopeRef{
			Kind: schemas.NodeKind, Key: key, Event: fmt.Sprint("forged-", h.block), Sequence: 1<<60 + uint64(h.block), Since: time.Now(),
		},
	}
	data := expect.ToJSON(h.T, a)
	if channel == "" {
		channel = a.Channel()
	}
	h.publish(channel, forgedHeader(schemas.IntentsType), data)
}

// forgeIntents publishes forged answers of every kind.
func (h *attacker) forgeIntents() {
	intent := func(name string, uid types.UID, node string) schemas.Intent {
		return schemas.Intent{
			ID: fmt.Sprintf("forged.%d.%s.%s", h.block, uid, node), Node: node, Reason: "because",
			Pod: schemas.PodRef{Namespace: h.Namespace, Name: name, UID: uid}, Expires: time.Now().Add(time.Minute),
		}
	}
	var here, elsewhere []schemas.Intent // the victims on their nodes, and on wrong nodes
	for uid, name := range h.victims {
		here = append(here, intent(name, uid, h.Nodes[2]))
		elsewhere = append(elsewhere, intent(name, uid, h.Nodes[1]))
	}
	own := "rehome.intents.Steals.default.node." + schemas.Token(h.Nodes[2])
	h.forgeAnswer(own, honestStrategy, h.Nodes[2], here...)                    // on the subject of another strategy
	h.forgeAnswer("rehome.intents.forged.a.b.c", honestStrategy, "x", here...) // of no scope
	h.forgeAnswer("", honestStrategy, "nowhere", here...)                      // pods outside of the scope, unchanged
	h.forgeAnswer("", honestStrategy, h.Nodes[1], elsewhere...)                // and as if they were in it
	h.forgeAnswer("", "NoSuch", h.Nodes[2], here...)
	h.forgeAnswer("", "Babbles", h.Nodes[2], intent("guarded", h.guarded, h.Nodes[2]), intent("guarded", "another", h.Nodes[2]))
}

// forgeVerdicts publishes forged verdicts on pods that are about to move.
func (h *attacker) forgeVerdicts(pods map[types.UID]string) {
	for uid, name := range pods {
		for _, outcome := range []schemas.Outcome{schemas.Evicted, schemas.Settled, schemas.Deferred, schemas.Rejected, "moved"} {
			v := schemas.Verdict{
				Outcome: outcome, Reason: schemas.ReasonCameBack, Profile: "default", Strategy: honestStrategy,
				Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: h.Nodes[0], Event: "forged", Since: time.Now()},
				Intent: schemas.Intent{ID: "forged." + name, Pod: schemas.PodRef{Namespace: h.Namespace, Name: name, UID: uid}, Node: h.Nodes[0]},
			}
			data := expect.ToJSON(h.T, v)
			h.publish(v.Channel(), forgedHeader(schemas.VerdictType), data)
		}
	}
}

// sendMalformed publishes invalid or oversized messages on every subject except the subjects of requests.
func (h *attacker) sendMalformed() {
	for noun, eventType := range map[string]string{
		"delta.node.taints": schemas.DeltaType, "verdict.evicted." + honestStrategy + ".a": schemas.VerdictType,
		"receipt.flood": schemas.ReceiptType, "scope." + honestStrategy + ".default.node": schemas.ScopeType,
		"intents." + honestStrategy + ".default.node": schemas.IntentsType, "dead." + bus.StreamScopes: "",
	} {
		channel := fmt.Sprintf("rehome.%s.malformed-%d-", noun, h.block)
		packed := forgedHeader(eventType)
		packed["Content-Encoding"] = []string{"gzip"}
		h.publish(channel+"garbage", nil, []byte("\x00\x01"))
		h.publish(channel+"shapeless", forgedHeader(eventType), []byte(`[[[7]]]`))
		h.publish(channel+"large", forgedHeader(eventType), bytes.Repeat([]byte("["), 1_000_000))
		h.publish(channel+"bomb", packed, h.bombs[beyondAll])
		h.publish(channel+"beyond", forgedHeader(eventType), make([]byte, 9<<20))
	}
}

// attack does all hostile work except forged verdicts.
func (h *attacker) attack() {
	h.sendRequests()
	h.forgeIntents()
	pause := time.NewTicker(pauses)
	defer pause.Stop()
	for burst := range bursts {
		h.flood(burst, floods/blocks/bursts)
		if burst == bursts/2 {
			h.sendMalformed()
		}
		<-pause.C
	}
}

// requestBody returns a request with that name to move a target.
func requestBody(sender, name, target, more string) []byte {
	return fmt.Appendf(nil, `{"sender":%q,"name":%q,"action":"deschedule","reason":"now","target":%s%s}`, sender, name, target, more)
}

// victim returns the target that the sender may not move.
func (h *attacker) victim() string {
	return fmt.Sprintf(`{"workload":{"kind":"Deployment","namespace":%q,"name":"victim"}}`, h.Namespace)
}

// sendRequests sends invalid requests, and requests beyond the rights of the sender.
func (h *attacker) sendRequests() {
	request := func(sender, words string, header nats.Header, body []byte) {
		h.publish("rehome.request."+sender+"."+words, header, body)
	}
	event := func(name string) nats.Header {
		e := forgedHeader(schemas.RequestType)
		e["ce-id"] = []string{fmt.Sprint("ask-", name)}
		return e
	}
	name := func(text string) string { return fmt.Sprintf("%s-%d", text, h.block) }
	bomb := event(name("bomb"))
	bomb["Content-Encoding"] = []string{"gzip"}
	own := `{"workload":{"kind":"Deployment","namespace":"elsewhere","name":"victim"}}`

	request("rude", name("garbage"), nil, []byte("\x00\x01"))
	request("rude", name("shapeless"), event(name("shapeless")), []byte(`[[[7]]]`))
	request("rude", name("bomb"), bomb, h.bombs[beyondRequest])
	request("rude", name("large"), event(name("large")), bytes.Repeat([]byte("["), 1_000_000))
	request("rude", name("two")+".words", event(name("two")), requestBody("rude", name("two"), h.victim(), ""))
	request("rude", name("another"), event(name("another")), requestBody("admin", name("another"), h.victim(), ""))
	request("rude", name("pods"), event(name("pods")), requestBody("rude", name("pods"), h.victim(), ""))
	request("rude", name("node"), event(name("node")), requestBody("rude", name("node"), fmt.Sprintf(`{"node":%q}`, h.Nodes[2]), ""))
	request("rude", name("rule"), event(name("rule")), requestBody("rude", name("rule"), own, fmt.Sprintf(`,"override":[%q]`, policy.DaemonSetPods)))
	request("nobody", name("pods"), event(name("nobody")), requestBody("nobody", name("pods"), h.victim(), ""))
}

// flood sends requests to move the victims, from a sender with rights in another namespace only.
func (h *attacker) flood(burst, n int) {
	for i := range n {
		name := fmt.Sprintf("r-%d-%d-%d", h.block, burst, i)
		m := &nats.Msg{Subject: "rehome.request.flood." + name, Header: forgedHeader(schemas.RequestType)}
		m.Header["ce-id"] = []string{name}
		m.Data = requestBody("flood", name, h.victim(), "")
		h.T.Must(h.nc.PublishMsg(m))
	}
}

// waitProcessed waits until the flood is processed, however long the server takes to store and drop it.
func (h *attacker) waitProcessed() {
	h.T.Helper()
	began, left := time.Now(), uint64(1)
	for left > 0 && time.Since(began) < 5*expect.Patience {
		time.Sleep(100 * time.Millisecond)
		if stream, err := h.js.Stream(h.T.Context(), bus.StreamRequests); err == nil { // otherwise the server is too busy to answer
			left = stream.CachedInfo().State.Msgs
		}
	}
	h.T.Logf("after the flood of block %d it took %v until no request was open", h.block, time.Since(began))
	if left > 0 {
		h.T.Fatalf("%d requests are still open", left)
	}
}
