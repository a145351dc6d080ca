package bus

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
	"github.com/rehome-dev/rehome/test/kit/scene"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// secureNATS is a cluster of servers with TLS and authentication, and the directory with the files of the participants.
type secureNATS struct {
	*scene.NATSServers
	dir string
}

// startSecureNATS writes the keys and rights with rehome, and starts n servers with them.
func startSecureNATS(s *scene.Scene, n int) secureNATS {
	s.T.Helper()
	g := secureNATS{scene.NewNATS(s.T, n), filepath.Join(s.T.TempDir(), "auth")}
	got := s.Run([]string{"auth", "init", g.dir, "--sender", "batch", "--sender", "other", "--forwarder", "audit",
		"--function", "KeepOff=functions.keep-off", "--tls", "127.0.0.1,localhost"})
	if got.Code != 0 {
		s.T.Fatalf("rehome auth init: %s", got)
	}
	tls := func(verify string) string {
		return fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, %s: true }",
			g.file("server.crt"), g.file("server.key"), g.file("ca.crt"), verify)
	}
	for i := range g.Settings {
		g.Settings[i].Config = g.file(g.Settings[i].Name + ".conf")
		// Only names are checked, so the routes need one.
		g.WriteConfig(i, "localhost", ", "+tls("verify_cert_and_check_known_urls"), tls("verify")+"\ninclude \"rehome.conf\"\n")
		g.Start(i)
	}
	return g
}

func (g secureNATS) file(name string) string { return filepath.Join(g.dir, name) }

// environment returns the environment of a participant.
func (g secureNATS) environment(name string) []string {
	return []string{
		g.Setting(), "REHOME_NATS_NKEY_FILE=" + g.file(name+".nk"), "REHOME_NATS_CA_FILE=" + g.file("ca.crt"),
		"REHOME_NATS_CERT_FILE=" + g.file("client.crt"), "REHOME_NATS_KEY_FILE=" + g.file("client.key"),
	}
}

// options returns the options of a Go program that connects as a participant.
func (g secureNATS) options(name string) bus.Options {
	return bus.Options{
		Name: name, URL: g.URL(), NKeyFile: g.file(name + ".nk"), CAFile: g.file("ca.crt"),
		CertFile: g.file("client.crt"), KeyFile: g.file("client.key"), Log: slog.New(slog.DiscardHandler),
	}
}

// plainOptions connects as a participant with the plain NATS client. A refusal by the server fails the test.
func (g secureNATS) plainOptions(name string) []nats.Option {
	g.T.Helper()
	key, err := nats.NkeyOptionFromSeed(g.file(name + ".nk"))
	if err != nil {
		g.T.Fatal(err)
	}
	return []nats.Option{
		key, nats.RootCAs(g.file("ca.crt")), nats.ClientCert(g.file("client.crt"), g.file("client.key")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { g.T.Errorf("%s: %v", name, err) }),
	}
}

// listener is an external program that receives verdicts with the key listener.nk.
type listener struct {
	mu    sync.Mutex
	heard map[string]int // the number of deliveries, by the ID of the verdict
}

// newListener starts a listener that receives all verdicts from now on.
func (g secureNATS) newListener() *listener {
	g.T.Helper()
	nc, err := nats.Connect(g.URL(), g.plainOptions("listener")...)
	if err != nil {
		g.T.Fatal(err)
	}
	g.T.Cleanup(nc.Close)
	l := &listener{heard: map[string]int{}}
	if _, err = nc.Subscribe("rehome.verdict.>", func(m *nats.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.heard[m.Header.Get("ce-id")]++
	}); err == nil {
		err = nc.Flush()
	}
	if err != nil {
		g.T.Fatal(err)
	}
	return l
}

// checkHeard checks that the listener received each verdict of the history once.
func (l *listener) checkHeard(events *scene.Recording) {
	events.T.Helper()
	expect.EventuallyWithState(events.T, "the listener heard each verdict once", func() (bool, string) {
		want := map[string]int{}
		for _, e := range events.All() {
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
func webOffDedicated(s externalScope) []externalMove {
	moves := []externalMove{}
	tainted := slices.ContainsFunc(s.Node.Spec.Taints, func(t externalTaint) bool { return t.Key == "dedicated" })
	for _, p := range s.Pods {
		if tainted && strings.HasPrefix(p.Pod.Metadata.Name, "web-") && len(p.Protected) == 0 {
			moves = append(moves, p.move("the node has a taint"))
		}
	}
	return moves
}

// checkRefused checks that the server refuses a message of a participant on a channel at once.
func (g secureNATS) checkRefused(name, channel string) {
	g.T.Helper()
	b, err := bus.Connect(g.options(name))
	if err != nil {
		g.T.Fatal(err)
	}
	defer b.Close()
	delta := schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "forged"}}
	e := schematest.Event(g.T, "/clusters/forged/"+name, delta, time.Now(), schemas.Event{})
	e.Channel = channel
	expect.EventuallyWithState(g.T, name+" is connected", func() (bool, string) {
		_, err = b.Publish(g.T.Context(), e)
		return !errors.Is(err, bus.ErrNotConnected), fmt.Sprint(err)
	})
	want := fmt.Sprintf("not permitted: %s may not publish on %q", name, channel)
	if name == "listener" { // it also lacks the right to get the acknowledgment, which the server checks first
		want = "not permitted: listener may not "
	}
	if !errors.Is(err, bus.ErrNotPermitted) || !strings.Contains(err.Error(), want) {
		g.T.Errorf("%s on %s: got %v, want %s", name, channel, err, want)
	}
}

func TestRolesWithOwnRights(t *testing.T) {
	t.Parallel()
	s := scene.New(t, 1)
	s.AddDeployment("api", 6)
	s.AddDeployment("web", 4)
	s.AddNodes(2)
	before := s.PodsOn(s.Nodes[0])
	g := startSecureNATS(s, 3)
	file := drainInTwo(s)
	if got := s.Run([]string{"setup", "--policy", file}, append(g.environment("setup"), "REHOME_NATS_REPLICAS=3")...); got.Code != 0 {
		t.Fatalf("rehome setup: %s", got)
	}
	overNATS(t, g.NATSServers, "functions.keep-off", webOffDedicated, g.plainOptions("function-KeepOff")...)
	for _, role := range []string{"watcher", "functions", "dispatcher", "actuator", "maintenance"} {
		environment := g.environment(role)
		if role == "dispatcher" { // it needs no cluster
			environment = append(environment, "KUBECONFIG=/nowhere")
		}
		s.StartRole(role, file, environment...)
	}
	events, outside := scene.Record(t, g.options("operator")), g.newListener()

	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	s.WaitReady("api")
	s.WaitReady("web")
	s.CheckEvictedOnce(before)
	movedBy := map[string]int{}
	for _, v := range scene.WithOutcome(schemas.Evicted, events.WaitVerdicts("every eviction has its verdict", func(v []schemas.Verdict) bool {
		return len(scene.WithOutcome(schemas.Evicted, v)) == len(before)
	})) {
		deployment, _, _ := strings.Cut(v.Intent.Pod.Name, "-")
		movedBy[deployment+" by "+v.Strategy]++
	}
	if want := map[string]int{"api by RemovePodsViolatingNodeTaints": 6, "web by KeepOff": 4}; !maps.Equal(movedBy, want) {
		t.Errorf("moved %v, want %v", movedBy, want)
	}
	requestAsBatch(s, g)
	outside.checkHeard(events)
	g.checkRights(s, events)
}

// drainInTwo returns a policy. With it, Rehome moves the pods of api off tainted nodes, and an external function moves the pods
// of web. The sender batch may request everything in the namespace.
func drainInTwo(s *scene.Scene) string {
	return s.ProfilesPolicy([]string{`  - name: default
    pluginConfig:
    - {name: RemovePodsViolatingNodeTaints, args: {labelSelector: {matchLabels: {app: api}}}}
    - {name: KeepOff}
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints, KeepOff]}}`},
		"functions:", "- {name: KeepOff, scope: node, wakes: [node.taints], nats: {subject: functions.keep-off}}",
		"requests: {senders: [{name: batch, namespaces: ["+s.Namespace+"]}]}")
}

// requestAsBatch makes requests with the key of a sender, and with another key.
func requestAsBatch(s *scene.Scene, g secureNATS) {
	s.T.Helper()
	s.WaitRunning("app=web", 4)
	pod := s.PodsOf("web")[0]
	s.Cordon(pod.Spec.NodeName, true) // otherwise the scheduler may place it there again
	ask := []string{"move", "pod", pod.Name, "-n", s.Namespace, "--reason", "it hangs", "--sender", "batch", "--name", "one"}
	if got := s.Run(ask, g.environment("sender-other")...); got.Code != 1 || got.Stdout != "" || !strings.Contains(got.Stderr, "not permitted: sender-batch may not ") {
		s.T.Errorf("rehome move with the key of another: %s", got)
	}
	got := s.Run(ask, g.environment("sender-batch")...)
	if got.Code != 0 || got.Stderr != "" || !strings.Contains(got.Stdout, "   Replaced after ") ||
		!strings.Contains(got.Stdout, "\nrequest batch/one finished: Done: ") {
		s.T.Errorf("rehome move with the key of a sender: %s", got)
	}
}

// checkRights checks commands with the keys of users, and that no key can publish for other roles.
func (g secureNATS) checkRights(s *scene.Scene, events *scene.Recording) {
	t := s.T
	t.Helper()
	for _, command := range [][]string{{"events", "--since", "1h"}, {"status"}, {"get", "breakers"}} {
		if got := s.Run(command, g.environment("reader")...); got.Code != 0 || got.Stdout == "" || strings.Contains(got.Stderr, "may not") {
			t.Errorf("rehome %s as a reader: %s", command, got)
		}
	}
	got := s.Run([]string{"get", "deadletters"}, g.environment("reader")...)
	if want := `not permitted: operator may not subscribe to "_INBOX_operator.`; got.Code != 1 || !strings.Contains(got.Stderr, want) {
		t.Errorf("rehome get deadletters as a reader: %s, want %s", got, want)
	}
	if got := s.Run([]string{"get", "deadletters"}, g.environment("operator")...); got.Code != 0 || !strings.HasPrefix(got.Stdout, "No resources found.") {
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
			g.checkRefused(name, channel)
		}
	}
	for _, e := range events.All() {
		if strings.HasPrefix(e.Source, "/clusters/forged/") {
			t.Errorf("an event of %s is on %s", e.Source, e.Channel)
		}
	}
	anybody := g.options("reader")
	anybody.NKeyFile = ""
	b, err := bus.Connect(anybody)
	s.T.Must(err)
	defer b.Close()
	expect.EventuallyWithState(t, "no client connects without a key", func() (bool, string) {
		err := fmt.Sprint(b.Ready())
		return strings.Contains(strings.ToLower(err), "authorization violation"), err
	})
}
