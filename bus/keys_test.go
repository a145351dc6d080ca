package bus_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// confined returns the participants that can write only their own subjects.
func confined() []bus.Participant {
	return []bus.Participant{
		{Role: bus.RoleFunctions}, {Role: bus.RoleDispatcher}, {Role: bus.RoleAPI}, {Role: bus.RoleOperator},
		{Role: bus.RoleSender, Name: "batch"}, {Role: bus.RoleReader}, {Role: bus.RoleListener},
		{Role: bus.RoleForwarder, Name: "audit"},
		{Role: bus.RoleFunction, Name: "KeepOffSpot", Subject: asksOn},
	}
}

// key is a participant with its rights to publish.
type key struct {
	bus.Participant
	publish []string
}

// may reports whether the key may publish on a subject.
func (k key) may(subject string) bool {
	return slices.ContainsFunc(k.publish, func(s string) bool { return server.SubjectMatchesFilter(subject, s) })
}

// works reports whether the key takes messages from a consumer.
func (k key) works(stream, consumer string) bool {
	return k.may("$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer)
}

// drops reports whether the key may remove single messages of a stream.
func (k key) drops(stream string) bool { return k.may("$JS.API.STREAM.MSG.DELETE." + stream) }

// victims are subjects that belong to a role or to another program: subjects of each noun, of requests to JetStream, of
// acknowledgments, and of inboxes.
func victims() []string {
	return []string{
		"rehome.delta.node.taints.x", "rehome.scope.RemovePods.default.node.x", "rehome.intents.RemovePods.default.node.x",
		"rehome.intents.Request.default.request.x", "rehome.intents.Maintenance.default.node.x",
		"rehome.verdict.evicted.x", "rehome.request.other.x", "rehome.request.http.x", "rehome.receipt.other.x", "rehome.maintenance.x",
		"rehome.dead." + bus.StreamScopes + ".RemovePods", "rehome.dead." + bus.StreamEvents + ".other",
		"$KV.REHOME_LEDGER.clear.all", "$KV.REHOME_LEDGER.move.x", "$KV.REHOME_MAINTENANCES.x",
		"$JS.API.STREAM.PURGE." + bus.StreamIntents, "$JS.API.STREAM.DELETE." + bus.StreamLedger,
		"$JS.ACK." + bus.StreamScopes + ".RemovePods.1.1.1.1.0", "$JS.ACK." + bus.StreamEvents + ".other.1.1.1.1.0",
		"$JS.FC." + bus.StreamLedger + ".x", "_INBOX_actuator.x", asksOn,
	}
}

// question is a message that a key tries to publish. Its data may contain a reply subject.
type question struct {
	subject string
	data    func(victim string) any
}

// questions returns messages on all subjects, and all requests about streams and consumers.
func questions() (all []question) {
	always := func(data any) func(string) any { return func(string) any { return data } }
	event := always(json.RawMessage(`{"x":1}`))
	for _, subject := range victims() {
		all = append(all, question{subject, event})
	}
	for _, subject := range []string{
		"rehome.request.batch.x", "rehome.receipt.batch.x", "rehome.dead." + bus.StreamEvents + ".audit", "_INBOX_sender-batch.x", "elsewhere",
	} {
		all = append(all, question{subject, event})
	}
	ask := func(subject string, data func(string) any) { all = append(all, question{"$JS.API." + subject, data}) }
	for _, subject := range []string{"INFO", "STREAM.NAMES", "STREAM.LIST"} {
		ask(subject, event)
	}
	ask("STREAM.CREATE.MINE", always(map[string]any{"name": "MINE", "subjects": []string{"mine"}}))
	for _, stream := range allStreams {
		for _, what := range []string{"INFO", "DELETE", "PURGE", "LEADER.STEPDOWN", "RESTORE"} {
			ask("STREAM."+what+"."+stream, always(map[string]any{}))
		}
		ask("STREAM.UPDATE."+stream, always(map[string]any{"name": stream, "subjects": []string{"mine.>"}}))
		ask("STREAM.SNAPSHOT."+stream, func(v string) any { return map[string]any{"deliver_subject": v} })
		ask("STREAM.MSG.DELETE."+stream, always(map[string]any{"seq": 1}))
		ask("STREAM.MSG.GET."+stream, always(map[string]any{"seq": 1}))
		ask("STREAM.MSG.GET."+stream, always(map[string]any{"next_by_subj": ">"}))
		ask("STREAM.MSG.GET."+stream, always(map[string]any{"last_by_subj": ">"}))
		ask("DIRECT.GET."+stream, always(map[string]any{"seq": 1, "batch": 10}))
		ask("DIRECT.GET."+stream+".>", event)
		for _, what := range []string{"NAMES", "LIST"} {
			ask("CONSUMER."+what+"."+stream, always(map[string]any{}))
		}
		pushed := func(config map[string]any) func(string) any {
			return func(v string) any {
				config := maps.Clone(config)
				config["deliver_subject"], config["ack_policy"], config["deliver_policy"] = v, "none", "all"
				return map[string]any{"stream_name": stream, "config": config}
			}
		}
		ask("CONSUMER.CREATE."+stream, pushed(map[string]any{}))
		ask("CONSUMER.CREATE."+stream+".thief", pushed(map[string]any{"name": "thief"}))
		ask("CONSUMER.CREATE."+stream+".thief.>", pushed(map[string]any{"name": "thief", "filter_subject": ">"}))
		ask("CONSUMER.DURABLE.CREATE."+stream+".thief", pushed(map[string]any{"durable_name": "thief"}))
		for _, consumer := range []string{strategy, "audit", "other"} {
			ask("CONSUMER.CREATE."+stream+"."+consumer, pushed(map[string]any{"name": consumer, "durable_name": consumer}))
			for _, what := range []string{"INFO", "DELETE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN"} {
				ask("CONSUMER."+what+"."+stream+"."+consumer, always(map[string]any{}))
			}
			ask("CONSUMER.MSG.NEXT."+stream+"."+consumer, always(map[string]any{"batch": 10, "no_wait": true}))
			ask("CONSUMER.MSG.NEXT."+stream+"."+consumer, always(map[string]any{"batch": 10, "expires": 1e9, "idle_heartbeat": 1e8}))
			ack := "$JS.ACK." + stream + "." + consumer + ".1.1.1.1.0"
			all = append(all, question{ack, always(json.RawMessage("+TERM"))}, question{ack, always(json.RawMessage("-NAK"))},
				question{ack, always(json.RawMessage("+NXT"))})
		}
	}
	return all
}

var allStreams = []string{
	bus.StreamScopes, bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamDead, bus.StreamLedger, bus.StreamMaintenances,
}

// seeded returns a server whose streams have messages, and a connection inside it.
func seeded(t *testing.T) (port, jetstream.JetStream) {
	t.Helper()
	p := listening(t)
	admin := bustest.Connect(t, bus.Options{Server: p.server})
	bustest.SetUp(t, admin, bus.Setup{Strategies: []string{strategy}})
	js := bustest.Raw(t, p.server)
	seed(t, admin, js)
	return p, js
}

// TestConfinedKeyWrites publishes every question with the key of each confined participant, and with each victim as the
// reply subject, as the deliver subject of a consumer, and as the subject of a trace. Each key has its own server.
func TestConfinedKeyWrites(t *testing.T) {
	t.Parallel()
	for _, who := range confined() {
		t.Run(who.String(), func(t *testing.T) {
			t.Parallel()
			p, js := seeded(t)
			tap := listenToAll(t, js.Conn())
			key := key{who, bus.RightsOf(who, hosting).Publish}
			before := stateOf(t, js, key)
			p.triesAll(t, key, victims())
			// The inside connection comes after everything that the server had to do for the key.
			var after map[string]any
			expect.Eventually(t, "the streams are at rest", func() bool {
				time.Sleep(200 * time.Millisecond)
				was := after
				after = stateOf(t, js, key)
				return reflect.DeepEqual(was, after)
			})
			for _, what := range slices.Sorted(maps.Keys(before)) {
				if !reflect.DeepEqual(before[what], after[what]) {
					t.Errorf("%s changed %s:\nbefore %+v\nafter  %+v", key, what, before[what], after[what])
				}
			}
			for what := range after {
				if _, was := before[what]; !was {
					t.Errorf("%s made %s", key, what)
				}
			}
			if who.Role == bus.RoleForwarder {
				c, err := js.Consumer(t.Context(), bus.StreamEvents, who.Name)
				if err != nil || c.CachedInfo().Delivered.Consumer == 0 {
					t.Errorf("%s: got no message of its own consumer: %v", key, err)
				}
			}
			for subject, by := range tap.take() {
				if !key.may(subject) && slices.Contains(victims(), subject) {
					t.Errorf("%s wrote on %s: %s", key, subject, by)
				}
			}
		})
	}
}

// TestKeyPublishSubjects does the same with the keys in the account of the streams. The server replies to them on
// any subject of this account, so the test checks only the subjects of their messages.
func TestKeyPublishSubjects(t *testing.T) {
	t.Parallel()
	for _, role := range []bus.Role{bus.RoleSetup, bus.RoleWatcher, bus.RoleActuator, bus.RoleMaintenance, bus.RoleAll} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			p := listening(t)
			bustest.SetUp(t, bustest.Connect(t, bus.Options{Server: p.server}), bus.Setup{Strategies: []string{strategy}})
			who := bus.Participant{Role: role}
			p.triesAll(t, key{who, bus.RightsOf(who, hosting).Publish}, victims()[:1])
		})
	}
}

// TestAnswersForgeNothing does the same with the keys of roles, and with each victim as the reply subject. Replies of the server
// can replace messages of other roles, but no reply is an event.
func TestAnswersForgeNothing(t *testing.T) {
	t.Parallel()
	isAnswer := regexp.MustCompile(`^\{"(type":"io\.nats\.jetstream\.api\.|stream":"|error":\{)`)
	for _, role := range []bus.Role{bus.RoleWatcher, bus.RoleActuator, bus.RoleMaintenance} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			p, js := seeded(t)
			k := key{bus.Participant{Role: role}, bus.RightsOf(bus.Participant{Role: role}, hosting).Publish}
			answers := 0
			if _, err := js.Conn().Subscribe(">", func(m *nats.Msg) {
				if !slices.Contains(victims(), m.Subject) || k.may(m.Subject) {
					return
				}
				if answers++; !isAnswer.Match(m.Data) || len(m.Header) > 0 {
					t.Errorf("%s wrote on %s: %v %.200s", k, m.Subject, m.Header, m.Data)
				}
			}); err != nil {
				t.Fatal(err)
			}
			p.tryAll(t, k.String(), victims())
			expect.Must(t, js.Conn().Drain())
			expect.Eventually(t, "all answers are read", js.Conn().IsClosed)
			t.Logf("%s: %d answers on subjects of others", k, answers)
		})
	}
}

// triesAll checks that the server lets a key publish on the subjects of its rights and on no others.
func (p port) triesAll(t *testing.T, key key, replies []string) {
	t.Helper()
	tried, allowed := p.tryAll(t, key.String(), replies)
	t.Logf("%s: tried %d combinations; %d subjects are allowed:\n  %s", key, tried, len(allowed), strings.Join(allowed, "\n  "))
	var want []string
	for _, q := range questions() {
		if key.may(q.subject) && !slices.Contains(want, q.subject) {
			want = append(want, q.subject)
		}
	}
	if !slices.Equal(allowed, want) {
		t.Errorf("%s: allowed are\n%q\nwant\n%q", key, allowed, want)
	}
}

// tryAll publishes every question with a key and each reply subject, and returns the subjects that the server did not refuse.
func (p port) tryAll(t *testing.T, key string, replies []string) (tried int, allowed []string) {
	t.Helper()
	refused := map[string]bool{}
	var mu sync.Mutex
	nc := p.bare(t, key)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		if match := refusedPublish.FindStringSubmatch(err.Error()); match != nil {
			refused[match[1]] = true
		}
	})
	if !strings.HasPrefix(key, "function") && key != "listener" { // they have no inbox
		if _, err := nc.Subscribe("_INBOX_"+key+".>", func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	all := questions()
	for _, q := range all {
		for _, victim := range replies {
			text, err := json.Marshal(q.data(victim))
			if raw, ok := q.data(victim).(json.RawMessage); ok {
				text, err = raw, nil
			}
			expect.Must(t, err)
			for _, m := range []*nats.Msg{
				{Subject: q.subject, Reply: victim, Data: text},
				{Subject: q.subject, Reply: "_INBOX_" + key + ".x", Data: text},
				{Subject: q.subject, Reply: victim, Data: text, Header: nats.Header{"Nats-Trace-Dest": {victim}}},
				{Subject: q.subject, Reply: "_INBOX_" + key + ".x", Data: text, Header: nats.Header{"Nats-Trace-Dest": {victim}, "Nats-Rollup": {"all"}}},
			} {
				tried++
				expect.Must(t, nc.PublishMsg(m))
			}
		}
		if err := nc.FlushTimeout(expect.Patience); err != nil { // it would be cut off with too many refusals in one go
			t.Fatal(err)
		}
	}
	expect.Must(t, nc.Publish("the.end", nil))
	expect.Eventually(t, "all refusals are heard", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return refused["the.end"]
	})
	for _, q := range all {
		if !refused[q.subject] && !slices.Contains(allowed, q.subject) {
			allowed = append(allowed, q.subject)
		}
	}
	return tried, allowed
}

var refusedPublish = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]+)"`)

// seed stores a message of each noun, and creates the consumers of two forwarders.
func seed(t *testing.T, admin *bus.Bus, js jetstream.JetStream) {
	t.Helper()
	answered, _ := answer(t, "a", 1, "pod-1")
	bustest.Publish(t, admin, bustest.Delta(t, "a"), scope(t, "a", 1), answered, verdict(t, "pod-1"))
	for _, subject := range []string{
		"rehome.request.other.a", "rehome.receipt.other.a", "rehome.maintenance.a", "rehome.dead." + bus.StreamScopes + ".RemovePods",
		"$KV.REHOME_LEDGER.move.a", "$KV.REHOME_MAINTENANCES.a",
	} {
		if _, err := js.Publish(t.Context(), subject, []byte("+TERM")); err != nil { // it would end the work on a scope
			t.Fatal(err)
		}
	}
	for _, name := range []string{"audit", "other"} {
		if _, err := js.CreateConsumer(t.Context(), bus.StreamEvents, jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, FilterSubjects: []string{"rehome.>"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	scopes, err := js.Consumer(t.Context(), bus.StreamScopes, strategy)
	expect.Must(t, err)
	if _, err := scopes.Next(); err != nil { // so that an acknowledgment would do something
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // until the history has its copy of the intents
}

// stateOf returns the message counts of each stream by subject, and the consumers. It leaves out everything that the key may
// change: its subjects, the scopes that it may answer, and the first message of a stream whose messages it may remove.
func stateOf(t *testing.T, js jetstream.JetStream, k key) map[string]any {
	t.Helper()
	state := map[string]any{}
	streams := js.ListStreams(t.Context())
	for s := range streams.Info() {
		stream, err := js.Stream(t.Context(), s.Config.Name)
		expect.Must(t, err)
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		expect.Must(t, err)
		kept := maps.Clone(info.State.Subjects)
		if first, err := stream.GetMsg(t.Context(), 1); err == nil && k.drops(s.Config.Name) {
			delete(kept, first.Subject)
		}
		maps.DeleteFunc(kept, func(subject string, _ uint64) bool {
			return k.may(subject) || s.Config.Name == bus.StreamScopes && k.works(bus.StreamScopes, strategy) && strings.Contains(subject, "."+strategy+".")
		})
		var last uint64
		for subject := range kept {
			m, err := stream.GetLastMsgForSubject(t.Context(), subject)
			expect.Must(t, err)
			last = max(last, m.Sequence)
		}
		config := expect.ToJSON(t, info.Config)
		state["stream "+s.Config.Name] = fmt.Sprint(string(config), last, kept)
		consumers := stream.ListConsumers(t.Context())
		for c := range consumers.Info() {
			text := fmt.Sprint(c.Config.DeliverSubject, c.Config.FilterSubjects, c.Paused)
			if !k.works(s.Config.Name, c.Name) && (s.Config.Name != bus.StreamScopes || !k.may("rehome.scope."+strategy+".default.node.x")) {
				text += fmt.Sprint(" ", c.Delivered.Consumer, c.AckFloor.Consumer, c.NumAckPending)
				if !slices.ContainsFunc(victims(), k.may) { // the history has what it publishes, or a copy
					text += fmt.Sprint(" ", c.NumPending)
				}
			}
			state["consumer "+c.Name+" of "+s.Config.Name] = text
		}
		expect.Must(t, consumers.Err())
	}
	expect.Must(t, streams.Err())
	return state
}

// tap has the messages in the account of Rehome by subject.
type tap struct {
	mu   sync.Mutex
	nc   *nats.Conn
	seen map[string]string
}

func listenToAll(t *testing.T, nc *nats.Conn) *tap {
	t.Helper()
	h := &tap{nc: nc, seen: map[string]string{}}
	if _, err := nc.Subscribe(">", func(m *nats.Msg) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if m.Subject == server.JSAuditAdvisory { // a question to JetStream that need not have come by here
			var asked server.JSAPIAudit
			_ = json.Unmarshal(m.Data, &asked)
			h.seen[asked.Subject] = asked.Response
			return
		}
		h.seen[m.Subject] = fmt.Sprintf("%.100s", m.Data)
	}); err != nil {
		t.Fatal(err)
	}
	expect.Must(t, nc.Flush())
	return h
}

func (h *tap) take() map[string]string {
	_ = h.nc.Flush()
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = map[string]string{}
	return seen
}
