package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/filetest"
)

// socket makes a NATS client use the socket of a `rehome run`.
type socket string

func (s socket) InProcessConn() (net.Conn, error) { return net.Dial("unix", string(s)) }

// stranger is a client that may publish anything.
type stranger struct {
	t  *testing.T
	js jetstream.JetStream
}

func newStranger(t *testing.T, store string) stranger {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(socket(at(store).Socket)))
	expect.Must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	expect.Must(t, err)
	return stranger{t, js}
}

// publish stores a message and returns its number in Rehome, which in tables includes the creation time of the stream.
func (s stranger) publish(channel string, h nats.Header, body string) uint64 {
	s.t.Helper()
	ack, err := s.js.PublishMsg(s.t.Context(), &nats.Msg{Subject: channel, Header: h, Data: []byte(body)})
	if err != nil {
		s.t.Fatal(err)
	}
	if ack.Stream != bus.StreamScopes && ack.Stream != bus.StreamIntents {
		return ack.Sequence
	}
	stream, err := s.js.Stream(s.t.Context(), ack.Stream)
	if err != nil {
		s.t.Fatal(err)
	}
	return ack.Sequence + uint64(stream.CachedInfo().Created.UnixMicro())
}

// letter has the fields that identify a dead letter, and its error.
type letter struct{ on, subject, stream, sequence, reason, body string }

// deadLetters waits for n dead letters, and returns them by the channel of the message.
func (s stranger) deadLetters(n uint64) map[string]letter {
	s.t.Helper()
	letters := map[string]letter{}
	expect.EventuallyWithState(s.t, fmt.Sprintf("there are %d dead letters", n), func() (bool, string) {
		dead, err := s.js.Stream(s.t.Context(), bus.StreamDead)
		if err != nil {
			return false, err.Error()
		}
		state := dead.CachedInfo().State
		if state.Msgs < n {
			return false, fmt.Sprintf("%d", state.Msgs)
		}
		for i := state.FirstSeq; i <= state.LastSeq; i++ {
			m, err := dead.GetMsg(s.t.Context(), i)
			if err != nil {
				s.t.Fatal(err)
			}
			h := m.Header
			letters[h.Get(bus.HeaderSubject)] = letter{
				m.Subject, h.Get(bus.HeaderSubject), h.Get(bus.HeaderStream), h.Get(bus.HeaderSequence), h.Get(bus.HeaderError), string(m.Data),
			}
		}
		return true, ""
	})
	return letters
}

// header returns the header of an event with these attributes and the required ones.
func header(attributes ...string) nats.Header {
	h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/stranger"}, "ce-type": {"of.nobody"}}
	for i := 0; i < len(attributes); i += 2 {
		h["ce-"+attributes[i]] = []string{attributes[i+1]}
		if attributes[i+1] == "" {
			delete(h, "ce-"+attributes[i])
		}
	}
	return h
}

func TestUnreadableMessageDeadLetter(t *testing.T) {
	const strategy = "RemovePodsViolatingNodeTaints"
	s := newScene(t, 2)
	s.deployment("api", 3, preferring(s.nodes[0]))
	dir := filetest.ShortDir(t)
	p := s.rehome(s.policy(), dir)
	them := newStranger(t, dir)

	const scope, garbage = "rehome.scope." + strategy + ".default.node.garbage", "\x00\x01"
	const intents = "rehome.intents." + strategy + ".default.node.intent"
	const answer = `{"profile":"default","strategy":"` + strategy + `","scope":{"kind":"node","key":"intent"},"intents":[{}]}`
	asked := fmt.Sprint(them.publish(scope, nil, garbage))
	answered := fmt.Sprint(them.publish(intents, header("type", schemas.IntentsType), answer))
	want := map[string]letter{
		scope: {
			"rehome.dead." + bus.StreamScopes + "." + strategy, scope, bus.StreamScopes, asked,
			scope + " at " + asked + " of " + bus.StreamScopes +
				": read CloudEvent: invalid event: no CloudEvent: neither a header ce-specversion nor a JSON object", garbage,
		},
		intents: {
			"rehome.dead." + bus.StreamIntents + ".rehome", intents, bus.StreamIntents, answered,
			"event 1: invalid event: intents[0] has no id", answer,
		},
	}
	if got := them.deadLetters(2); !reflect.DeepEqual(got, want) {
		t.Errorf("dead letters:\ngot  %q\nwant %q", got, want)
	}

	// Messages that wait for redelivery would wait longer.
	tainted := time.Now()
	s.handles(3)
	if first := s.evictions()[0].time.Sub(tainted); first > bus.DefaultAckWait {
		t.Errorf("the first eviction came %v after the taint, want it at once", first)
	}
	if status, body := p.ready(); status != 200 {
		t.Errorf("/readyz: status %d: %s", status, body)
	}
}

func TestWatcherSurvivesForgedVerdicts(t *testing.T) {
	const on = "rehome.verdict.deferred.Other.scene.pod"
	s := newScene(t, 2)
	s.deployment("api", 2, preferring(s.nodes[0]))
	s.budget("keep-api", "api", 2)
	dir := filetest.ShortDir(t)
	s.rehome(s.policy(), dir)
	them := newStranger(t, dir)
	verdict := header("type", schemas.VerdictType)
	for _, body := range []string{
		`{"outcome":7}`, `{}`, `{"outcome":"deferred"}`,
		`{"outcome":"deferred","profile":"none","strategy":"Other","scope":{"kind":"galaxy","key":"x"},"intent":{"pod":{"uid":"1"}}}`,
		`{"outcome":"expired","profile":"none","strategy":"Other","scope":{"kind":"node","key":"x"},"intent":{"pod":{"uid":"1"}}}`,
	} {
		them.publish(on, verdict, body)
	}
	them.publish(on, nil, "\x00\x01")
	them.publish(on, header("id", ""), "{}")
	them.publish(on, header(), "{}")

	// The budget causes an evaluation of the pods, which shows that the watcher has read their verdicts after the forged ones.
	tainted := time.Now()
	s.taint(s.nodes[0], "dedicated")
	expect.EventuallyWithState(t, "both pods are deferred", func() (bool, string) {
		got := s.run([]string{"events", "--type", "verdict"}, "REHOME_STORE_DIR="+dir).stdout
		return strings.Count(got, "deferred: DisruptionBudget") == 2, got
	})
	s.changeBudget("keep-api", 1)
	s.emptied(s.nodes[0])
	if got := s.evicted(0, 2); len(got) != 2 || got[0].received.Sub(tainted) >= firstRetry {
		t.Errorf("evictions %v after the taint at %v, want 2, the first within %v", got, tainted, firstRetry)
	}
}

func TestInvalidPolicyErrors(t *testing.T) {
	s := newScene(t, 0)
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	filetest.Write(s.t, file, "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\n"+
		"nodeselector: a=b\nrate: {evictionsPerSecond: fast}\nprofiles: []\n")
	got := s.run([]string{"run", "--policy", file}, "REHOME_STORE_DIR="+filepath.Join(dir, "store"))
	got.stderr = strings.ReplaceAll(got.stderr, dir+"/", "")
	want := result{stderr: "policy.yaml:3: nodeselector: unknown field; did you mean nodeSelector?\n" +
		"policy.yaml:4: rate.evictionsPerSecond: want a number, got the text \"fast\"\n", code: 1}
	if got != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "store")); err == nil {
		t.Error("it began to work: there is a store")
	}
}

// connected has the possible log lines of a process before it finds that the address is in use.
var connected = regexp.MustCompile(`time=\S+ level=INFO msg="connected to the bus" .*\n`)

func TestInvalidSettings(t *testing.T) {
	s := newScene(t, 0)
	policy := s.policy()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	s.t.Must(err)
	defer taken.Close()
	address := taken.Addr().String()
	file := filepath.Join(t.TempDir(), "file")
	filetest.Write(s.t, file, "")
	for _, c := range []struct {
		name        string
		environment []string
		want        string
	}{
		{"invalid duration", []string{"REHOME_RESYNC=soon"}, `REHOME_RESYNC: want a duration such as 90s or 1h, got "soon"`},
		{"two copies", []string{"REHOME_NATS_REPLICAS=2"}, "REHOME_NATS_REPLICAS: want 1, 3 or 5, got 2"},
		{"missing kubeconfig", []string{"REHOME_KUBECONFIG=nowhere"}, "no cluster to connect to: stat nowhere: no such file or directory"},
		{"a store that is a file", []string{"REHOME_STORE_DIR=" + file}, "REHOME_STORE_DIR: mkdir " + file + ": not a directory"},
		{
			"missing credentials file", []string{"REHOME_NATS_URL=nats://127.0.0.1:1", "REHOME_NATS_CREDS_FILE=nowhere"},
			"bus nats://127.0.0.1:1: credentials: open nowhere: no such file or directory",
		},
		{
			"an address that is taken", []string{"REHOME_HTTP_ADDRESS=" + address},
			"REHOME_HTTP_ADDRESS: cannot listen on " + address + ": listen tcp " + address + ": bind: address already in use",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			environment := append([]string{"REHOME_STORE_DIR=" + filetest.ShortDir(t), "REHOME_HTTP_ADDRESS=", "REHOME_API_LOCAL="}, c.environment...)
			got := s.run([]string{"run", "--policy", policy}, environment...)
			got.stderr = connected.ReplaceAllString(got.stderr, "")
			if want := (result{stderr: c.want + "\n", code: 1}); got != want {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

func TestStoreInUse(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 2, preferring(s.nodes[0]))
	dir := filetest.ShortDir(t)
	policy := s.policy()
	s.rehome(policy, dir)
	got := s.run([]string{"run", "--policy", policy}, "REHOME_STORE_DIR="+dir, "REHOME_HTTP_ADDRESS=", "REHOME_API_LOCAL=")
	want := result{
		stderr: "REHOME_STORE_DIR: bus server in " + dir + ": another rehome is running and uses this store\n", code: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	s.handles(2) // the first process continues normally
}
