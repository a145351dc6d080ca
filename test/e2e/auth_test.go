package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// safeNATS is a cluster of servers with TLS and authentication, and the directory with the files of the participants.
type safeNATS struct {
	*natsServers
	dir string
}

// startSafeNATS writes the keys and rights with rehome, and starts n servers with them.
func (s *scene) startSafeNATS(n int) safeNATS {
	s.t.Helper()
	g := safeNATS{newNATS(s.t, n), filepath.Join(s.t.TempDir(), "auth")}
	got := s.run([]string{"auth", "init", g.dir, "--sender", "batch", "--sender", "other", "--forwarder", "audit",
		"--function", "KeepOff=functions.keep-off", "--tls", "127.0.0.1,localhost"})
	if got.code != 0 {
		s.t.Fatalf("rehome auth init: %s", got)
	}
	tls := func(verify string) string {
		return fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, %s: true }",
			g.file("server.crt"), g.file("server.key"), g.file("ca.crt"), verify)
	}
	for i := range g.settings {
		g.settings[i].config = g.file(g.settings[i].name + ".conf")
		// Only names are checked, so the routes need one.
		g.write(i, "localhost", ", "+tls("verify_cert_and_check_known_urls"), tls("verify")+"\ninclude \"rehome.conf\"\n")
		g.start(i)
	}
	return g
}

func (g safeNATS) file(name string) string { return filepath.Join(g.dir, name) }

// as returns the environment of a participant.
func (g safeNATS) as(name string) []string {
	return []string{
		g.variable(), "REHOME_NATS_NKEY_FILE=" + g.file(name+".nk"), "REHOME_NATS_CA_FILE=" + g.file("ca.crt"),
		"REHOME_NATS_CERT_FILE=" + g.file("client.crt"), "REHOME_NATS_KEY_FILE=" + g.file("client.key"),
	}
}

// options returns the options of a Go program that connects as a participant.
func (g safeNATS) options(name string) bus.Options {
	return bus.Options{
		Name: name, URL: g.url(), NKeyFile: g.file(name + ".nk"), CAFile: g.file("ca.crt"),
		CertFile: g.file("client.crt"), KeyFile: g.file("client.key"), Log: slog.New(slog.DiscardHandler),
	}
}

// bare connects as a participant with the plain NATS client. A refusal by the server fails the test.
func (g safeNATS) bare(name string) []nats.Option {
	g.t.Helper()
	key, err := nats.NkeyOptionFromSeed(g.file(name + ".nk"))
	if err != nil {
		g.t.Fatal(err)
	}
	return []nats.Option{
		key, nats.RootCAs(g.file("ca.crt")), nats.ClientCert(g.file("client.crt"), g.file("client.key")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { g.t.Errorf("%s: %v", name, err) }),
	}
}

// listener is an external program that receives verdicts with the key listener.nk.
type listener struct {
	mu    sync.Mutex
	heard map[string]int // the number of deliveries, by the ID of the verdict
}

// listening starts a listener that receives all verdicts from now on.
func (g safeNATS) listening() *listener {
	g.t.Helper()
	nc, err := nats.Connect(g.url(), g.bare("listener")...)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(nc.Close)
	l := &listener{heard: map[string]int{}}
	if _, err = nc.Subscribe("rehome.verdict.>", func(m *nats.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.heard[m.Header.Get("ce-id")]++
	}); err == nil {
		err = nc.Flush()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return l
}

// hears checks that the listener received each verdict of the history once.
func (l *listener) hears(events *recording) {
	events.t.Helper()
	expect.EventuallyWithState(events.t, "the listener heard each verdict once", func() (bool, string) {
		want := map[string]int{}
		for _, e := range events.all() {
			if e.Type == schemas.VerdictType {
				want[e.ID] = 1
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(want) > 0 && maps.Equal(l.heard, want), fmt.Sprintf("heard %v, want %v", l.heard, want)
	})
}

// webOffDedicated returns an external function that moves the pods of the Deployment web off a node with the taint dedicated.
func webOffDedicated(s outsideScope) []outsideMove {
	moves := []outsideMove{}
	tainted := slices.ContainsFunc(s.Node.Spec.Taints, func(t outsideTaint) bool { return t.Key == "dedicated" })
	for _, p := range s.Pods {
		if tainted && strings.HasPrefix(p.Pod.Metadata.Name, "web-") && len(p.Protected) == 0 {
			moves = append(moves, p.move("the node has a taint"))
		}
	}
	return moves
}

// refused checks that the server refuses a message of a participant on a channel at once.
func (g safeNATS) refused(name, channel string) {
	g.t.Helper()
	b, err := bus.Connect(g.options(name))
	if err != nil {
		g.t.Fatal(err)
	}
	defer b.Close()
	delta := schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "forged"}}
	e := schematest.Event(g.t, "/clusters/forged/"+name, delta, time.Now(), schemas.Event{})
	e.Channel = channel
	expect.EventuallyWithState(g.t, name+" is connected", func() (bool, string) {
		_, err = b.Publish(g.t.Context(), e)
		return !errors.Is(err, bus.ErrNotConnected), fmt.Sprint(err)
	})
	want := fmt.Sprintf("not permitted: %s may not publish on %q", name, channel)
	if name == "listener" { // it also lacks the right to get the acknowledgment, which the server checks first
		want = "not permitted: listener may not "
	}
	if !errors.Is(err, bus.ErrNotPermitted) || !strings.Contains(err.Error(), want) {
		g.t.Errorf("%s on %s: got %v, want %s", name, channel, err, want)
	}
}

func TestRolesWithOwnRights(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	s.deployment("api", 6)
	s.deployment("web", 4)
	s.addNodes(2)
	before := s.pods(s.nodes[0])
	g := s.startSafeNATS(3)
	file := s.drainInTwo()
	if got := s.run([]string{"setup", "--policy", file}, append(g.as("setup"), "REHOME_NATS_REPLICAS=3")...); got.code != 0 {
		t.Fatalf("rehome setup: %s", got)
	}
	overNATS(t, g.natsServers, "functions.keep-off", webOffDedicated, g.bare("function-KeepOff")...)
	for _, role := range []string{"watcher", "functions", "dispatcher", "actuator", "maintenance"} {
		environment := g.as(role)
		if role == "dispatcher" { // it needs no cluster
			environment = append(environment, "KUBECONFIG=/nowhere")
		}
		s.role(role, file, environment...)
	}
	events, outside := record(t, g.options("operator")), g.listening()

	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	s.ready("api")
	s.ready("web")
	s.evictedOnce(before)
	movedBy := map[string]int{}
	for _, v := range of(schemas.Evicted, events.until("every eviction has its verdict", func(v []schemas.Verdict) bool {
		return len(of(schemas.Evicted, v)) == len(before)
	})) {
		deployment, _, _ := strings.Cut(v.Intent.Pod.Name, "-")
		movedBy[deployment+" by "+v.Strategy]++
	}
	if want := map[string]int{"api by RemovePodsViolatingNodeTaints": 6, "web by KeepOff": 4}; !maps.Equal(movedBy, want) {
		t.Errorf("moved %v, want %v", movedBy, want)
	}
	s.asksAsBatch(g)
	outside.hears(events)
	g.onlyWhatTheyMay(s, events)
}

// drainInTwo returns a policy. With it, Rehome moves the pods of api off tainted nodes, and an external function moves the pods
// of web. The sender batch may request everything in the namespace.
func (s *scene) drainInTwo() string {
	return s.profiles([]string{`  - name: default
    pluginConfig:
    - {name: RemovePodsViolatingNodeTaints, args: {labelSelector: {matchLabels: {app: api}}}}
    - {name: KeepOff}
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints, KeepOff]}}`},
		"functions:", "- {name: KeepOff, scope: node, wakes: [node.taints], nats: {subject: functions.keep-off}}",
		"requests: {senders: [{name: batch, namespaces: ["+s.namespace+"]}]}")
}

// asksAsBatch makes requests with the key of a sender, and with another key.
func (s *scene) asksAsBatch(g safeNATS) {
	s.t.Helper()
	s.running("app=web", 4)
	pod := s.podsOf("web")[0]
	s.cordon(pod.Spec.NodeName, true) // otherwise the scheduler may place it there again
	ask := []string{"move", "pod", pod.Name, "-n", s.namespace, "--reason", "it hangs", "--sender", "batch", "--name", "one"}
	if got := s.run(ask, g.as("sender-other")...); got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, "not permitted: sender-batch may not ") {
		s.t.Errorf("rehome move with the key of another: %s", got)
	}
	got := s.run(ask, g.as("sender-batch")...)
	if got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "   Replaced after ") ||
		!strings.Contains(got.stdout, "\nrequest batch/one finished: Done: ") {
		s.t.Errorf("rehome move with the key of a sender: %s", got)
	}
}

// onlyWhatTheyMay checks commands with the keys of users, and that no key can publish for other roles.
func (g safeNATS) onlyWhatTheyMay(s *scene, events *recording) {
	t := s.t
	t.Helper()
	for _, command := range [][]string{{"events", "--since", "1h"}, {"status"}, {"get", "breakers"}} {
		if got := s.run(command, g.as("reader")...); got.code != 0 || got.stdout == "" || strings.Contains(got.stderr, "may not") {
			t.Errorf("rehome %s as a reader: %s", command, got)
		}
	}
	got := s.run([]string{"get", "deadletters"}, g.as("reader")...)
	if want := `not permitted: operator may not subscribe to "_INBOX_operator.`; got.code != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("rehome get deadletters as a reader: %s, want %s", got, want)
	}
	if got := s.run([]string{"get", "deadletters"}, g.as("operator")...); got.code != 0 || !strings.HasPrefix(got.stdout, "No resources found.") {
		t.Errorf("rehome get deadletters as an operator: %s", got)
	}

	const strategy, pod = "RemovePodsViolatingNodeTaints", "default.forged"
	verdict, delta := "rehome.verdict.evicted."+strategy+"."+pod, "rehome.delta.node.taints.forged"
	intents, scope := "rehome.intents."+strategy+".default.node.forged", "rehome.scope."+strategy+".default.node.forged"
	maintenance, kept := "rehome.maintenance.forged", "$KV.REHOME_MAINTENANCES.node=2Fforged"
	cordons := "rehome.intents." + schemas.MaintenanceStrategy + ".default.maintenance.forged"
	for name, channels := range map[string][]string{
		"functions":       {verdict, delta, scope, maintenance, kept, cordons},
		"watcher":         {verdict, intents, maintenance, kept, cordons},
		"dispatcher":      {verdict, delta, scope, maintenance, kept, cordons},
		"actuator":        {delta, intents, scope, maintenance, kept, cordons},
		"maintenance":     {verdict, delta, intents, scope, "rehome.request.batch.one"},
		"reader":          {verdict, delta, intents, scope, "rehome.request.batch.one"},
		"listener":        {verdict, delta, intents, scope, "rehome.request.batch.one"},
		"forwarder-audit": {verdict, delta, intents, scope, "rehome.request.batch.one"},
		"sender-batch":    {verdict, delta, intents, scope, "rehome.request.other.one"},
	} {
		for _, channel := range channels {
			g.refused(name, channel)
		}
	}
	for _, e := range events.all() {
		if strings.HasPrefix(e.Source, "/clusters/forged/") {
			t.Errorf("an event of %s is on %s", e.Source, e.Channel)
		}
	}
	anybody := g.options("reader")
	anybody.NKeyFile = ""
	b, err := bus.Connect(anybody)
	s.t.Must(err)
	defer b.Close()
	expect.EventuallyWithState(t, "no client connects without a key", func() (bool, string) {
		err := fmt.Sprint(b.Ready())
		return strings.Contains(strings.ToLower(err), "authorization violation"), err
	})
}
