package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// safeNATS is a cluster of servers that talk TLS and know who takes part, and the directory with what participants need.
type safeNATS struct {
	*natsServers
	dir string
}

// startSafeNATS lets rehome write the keys and rights, and starts n servers with them.
func (s *scene) startSafeNATS(n int) safeNATS {
	s.t.Helper()
	g := safeNATS{newNATS(s.t, n), filepath.Join(s.t.TempDir(), "auth")}
	got := s.run([]string{"setup", "--auth", g.dir, "--sender", "batch", "--sender", "other", "--tls", "127.0.0.1"})
	if got.code != 0 {
		s.t.Fatalf("rehome setup --auth: %s", got)
	}
	for i := range g.settings {
		one := &g.settings[i]
		tls := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }",
			g.file("server.crt"), g.file("server.key"), g.file("ca.crt"))
		text := fmt.Sprintf("server_name: %s\nlisten: \"127.0.0.1:%d\"\n%s\njetstream { store_dir: %q, sync_interval: always }\n"+
			"cluster { name: rehome, listen: \"127.0.0.1:%d\", routes: [\"%s\"], %s }\ninclude \"rehome.conf\"\n",
			one.Name, one.Port, tls, one.Store, one.Peers, strings.Join(one.Routes, `", "`), tls)
		one.Config = g.file(one.Name + ".conf")
		s.must(os.WriteFile(one.Config, []byte(text), 0o600))
		g.start(i)
	}
	return g
}

func (g safeNATS) file(name string) string { return filepath.Join(g.dir, name) }

// as is the environment of a participant.
func (g safeNATS) as(name string) []string {
	return []string{
		g.variable(), "REHOME_NATS_NKEY_FILE=" + g.file(name+".nk"), "REHOME_NATS_CA_FILE=" + g.file("ca.crt"),
		"REHOME_NATS_CERT_FILE=" + g.file("client.crt"), "REHOME_NATS_KEY_FILE=" + g.file("client.key"),
	}
}

// options are how a program in Go connects as a participant.
func (g safeNATS) options(name string) bus.Options {
	return bus.Options{
		Name: name, URL: g.url(), NKeyFile: g.file(name + ".nk"), CAFile: g.file("ca.crt"),
		CertFile: g.file("client.crt"), KeyFile: g.file("client.key"), Log: slog.New(slog.DiscardHandler),
	}
}

// refused checks that a participant cannot publish on a channel, and hears so at once.
func (g safeNATS) refused(name, channel string) {
	g.t.Helper()
	b, err := bus.Connect(g.options(name))
	if err != nil {
		g.t.Fatal(err)
	}
	defer b.Close()
	delta := schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "forged"}}
	e, err := schemas.NewEvent("/clusters/forged/"+name, delta, time.Now(), schemas.Event{})
	if err != nil {
		g.t.Fatal(err)
	}
	e.Channel = channel
	eventually(g.t, name+" is connected", func() (bool, string) {
		_, err = b.Publish(g.t.Context(), e)
		return !errors.Is(err, bus.ErrNotConnected), fmt.Sprint(err)
	})
	want := fmt.Sprintf("not permitted: %s may not publish on %q", name, channel)
	if name == "listener" { // it may not hear either that something was stored, and asks for that first
		want = "not permitted: listener may not "
	}
	if !errors.Is(err, bus.ErrNotPermitted) || !strings.Contains(err.Error(), want) {
		g.t.Errorf("%s on %s: got %v, want %s", name, channel, err, want)
	}
}

func TestEveryRoleDoesItsWorkWithItsOwnRightsOnlyAndNobodyElses(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	s.deployment("api", 10)
	s.addNodes(2)
	before := s.pods(s.nodes[0])
	g := s.startSafeNATS(3)
	s.setUp(g.natsServers, append(g.as("setup"), "REHOME_NATS_REPLICAS=3")...)
	file := s.policy()
	for _, role := range []string{"watcher", "functions", "actuator"} {
		arguments := []string{role}
		if role != "functions" {
			arguments = append(arguments, "--policy", file)
		}
		s.start(arguments, g.as(role)...).waitReady()
	}
	events := record(t, g.options("operator"))

	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	s.ready("api")
	s.evictedOnce(before)
	events.until("every eviction has its verdict", func(v []schemas.Verdict) bool {
		return len(of(schemas.Evicted, v)) == len(before)
	})

	for _, command := range [][]string{{"events", "--since", "1h"}, {"status"}, {"loops"}} {
		if got := s.run(command, g.as("reader")...); got.code != 0 || got.stdout == "" || strings.Contains(got.stderr, "may not") {
			t.Errorf("rehome %s as a reader: %s", command, got)
		}
	}
	got := s.run([]string{"dead", "list"}, g.as("reader")...)
	if want := `not permitted: operator may not subscribe to "_INBOX_operator.`; got.code != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("rehome dead list as a reader: %s, want %s", got, want)
	}
	if got := s.run([]string{"dead", "list"}, g.as("operator")...); got.code != 0 || !strings.HasPrefix(got.stdout, "no dead letter") {
		t.Errorf("rehome dead list as an operator: %s", got)
	}

	const strategy, pod = "RemovePodsViolatingNodeTaints", "default.forged"
	verdict, delta := "rehome.verdict.evicted."+strategy+"."+pod, "rehome.delta.node.taints.forged"
	intents, scope := "rehome.intents."+strategy+".default.node.forged", "rehome.scope."+strategy+".default.node.forged"
	for name, channels := range map[string][]string{
		"functions":    {verdict, delta, scope},
		"watcher":      {verdict, intents},
		"actuator":     {delta, intents, scope},
		"reader":       {verdict, delta, intents, scope, "rehome.request.batch.one"},
		"listener":     {verdict, delta, intents, scope, "rehome.request.batch.one"},
		"sender-batch": {verdict, delta, intents, scope, "rehome.request.other.one"},
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
	s.must(err)
	defer b.Close()
	eventually(t, "nobody comes in without a key", func() (bool, string) {
		err := fmt.Sprint(b.Ready())
		return strings.Contains(strings.ToLower(err), "authorization violation"), err
	})
}
