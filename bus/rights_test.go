package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// asksOn is the subject of the function outside that takes part.
const asksOn = "functions.keep-off-spot"

// hosting lists all kinds of functions.
var hosting = bus.Hosting{BuiltIn: []string{strategy}, Subjects: []string{asksOn}}

// jobs has the whole work of each participant.
var jobs = []struct {
	who bus.Participant
	do  func(part) error
}{
	{bus.Participant{Role: bus.RoleSetup}, part.setUp},
	{bus.Participant{Role: bus.RoleWatcher}, func(p part) error { return p.all(part.attend, part.watch) }},
	{bus.Participant{Role: bus.RoleFunctions}, func(p part) error { return p.all(part.attend, part.decide) }},
	{bus.Participant{Role: bus.RoleDispatcher}, func(p part) error { return p.all(part.attend, part.decide, part.ask) }},
	{bus.Participant{Role: bus.RoleActuator}, func(p part) error { return p.all(part.attend, part.act) }},
	{bus.Participant{Role: bus.RoleMaintenance}, func(p part) error { return p.all(part.attend, part.maintain) }},
	{bus.Participant{Role: bus.RoleAPI}, func(p part) error { return p.all(part.attend, part.read, part.pass) }},
	{bus.Participant{Role: bus.RoleAll}, func(p part) error {
		return p.all(part.setUp, part.attend, part.watch, part.decide, part.ask, part.act, part.maintain, part.look, part.hear, part.pass)
	}},
	{bus.Participant{Role: bus.RoleReader}, part.read},
	{bus.Participant{Role: bus.RoleListener}, part.hear},
	{bus.Participant{Role: bus.RoleForwarder, Name: "audit"}, part.forward},
	{bus.Participant{Role: bus.RoleOperator}, part.operate},
	{bus.Participant{Role: bus.RoleFunction, Name: "KeepOffSpot", Subject: asksOn}, part.answer},
	{bus.Participant{Role: bus.RoleSender, Name: "batch"}, part.send},
}

// others are the nouns of event types without a row in the table of nouns.
func others() []bus.Noun {
	rows := []string{"delta", "scope", "intents", "verdict", "request", "receipt", "maintenance"}
	return slices.DeleteFunc(bus.Nouns(), func(n bus.Noun) bool { return n.Type == "" || slices.Contains(rows, n.Name) })
}

// inTime repeats a job while a busy machine answers it too late and refuses nothing.
func (p part) inTime(do func(part) error) error {
	for end := time.Now().Add(expect.Patience); ; {
		err := p.all(do, part.publishOthers)
		tooLate := errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, bus.ErrNotPermitted)
		if !tooLate || len(p.refusals.list()) > 0 || time.Now().After(end) {
			return err
		}
	}
}

// rightsWithout is the rights of a participant without one right.
type rightsWithout struct {
	missing string // a subject, or reply
	rights  bus.Rights
}

func without(all bus.Rights) (list []rightsWithout) {
	for i, subject := range all.Publish {
		less := all
		less.Publish = slices.Delete(slices.Clone(all.Publish), i, i+1)
		list = append(list, rightsWithout{subject, less})
	}
	for i, subject := range all.Subscribe {
		less := all
		less.Subscribe = slices.Delete(slices.Clone(all.Subscribe), i, i+1)
		list = append(list, rightsWithout{subject, less})
	}
	if all.Reply {
		less := all
		less.Reply = false
		list = append(list, rightsWithout{"reply", less})
	}
	return list
}

// house is a server with one user for a participant, and one user for each of its rights that lacks the right.
type house struct {
	store   string
	address string
	prefix  bus.Prefix
	admin   *bus.Bus
	nc      *nats.Conn
	raw     jetstream.JetStream
}

// userOf returns the name of the user of a participant that lacks a right.
func userOf(who bus.Participant, missing string) string { return who.String() + "|" + missing }

func permissions(r bus.Rights) *server.Permissions {
	p := &server.Permissions{
		Publish: &server.SubjectPermission{Allow: r.Publish}, Subscribe: &server.SubjectPermission{Allow: r.Subscribe},
	}
	if len(r.Publish) == 0 {
		p.Publish.Deny = []string{">"}
	}
	if len(r.Subscribe) == 0 {
		p.Subscribe.Deny = []string{">"}
	}
	if r.Reply {
		p.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute}
	}
	return p
}

func newHouse(t *testing.T, who bus.Participant, all bus.Rights, prefix bus.Prefix) *house {
	t.Helper()
	o := &server.Options{Users: []*server.User{{Username: "admin", Password: "x"}}}
	for _, r := range append(without(all), rightsWithout{"", all}) {
		o.Users = append(o.Users, &server.User{
			Username: userOf(who, r.missing), Password: "x", Permissions: permissions(r.rights),
		})
	}
	s := bustest.Serve(t, o)
	h := &house{store: s.StoreDir(), address: s.Addr().String(), prefix: prefix}
	h.admin = bustest.Connect(t, bus.Options{Name: "admin", URL: h.url("admin"), Prefix: prefix})
	h.nc, h.raw = h.connect(t, "admin", "_INBOX_admin", func(error) {})
	h.furnish(t)
	return h
}

// url returns the URL for a user.
func (h *house) url(user string) string {
	return (&url.URL{Scheme: "nats", User: url.UserPassword(user, "x"), Host: h.address}).String()
}

// connect returns a plain NATS client.
func (h *house) connect(t *testing.T, user, inbox string, refused func(error)) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(h.url(user), nats.CustomInboxPrefix(inbox),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused(err) }))
	expect.Must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(2*time.Second))
	expect.Must(t, err)
	return nc, js
}

// furnish creates all streams, and buckets large enough that the server slows their readers down.
func (h *house) furnish(t *testing.T) {
	t.Helper()
	bustest.SetUp(t, h.admin, bus.Setup{Strategies: []string{strategy}})
	for i := range 30 {
		expect.Must(t, h.admin.Ledger().Put(t.Context(), fmt.Sprintf("large.%d", i), make([]byte, 100<<10)))
		large := wanted(fmt.Sprintf("large-%d", i), v1alpha1.Cordon)
		large.Annotations = map[string]string{"a": strings.Repeat("x", 100<<10)}
		put(t, h.admin, large)
	}
}

// refusals are the subjects that the server refused.
type refusals struct {
	mu        sync.Mutex
	connected bool
	subjects  []string // to the program of Rehome
	others    []string // to the bare client
}

var refusedSubject = regexp.MustCompile(`(?i)(?:may not (?:publish on|subscribe to)|permissions violation for (?:publish|subscription) to) "([^"]+)"`)

func (r *refusals) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, match := range refusedSubject.FindAllStringSubmatch(strings.ReplaceAll(string(text), `\"`, `"`), -1) {
		r.subjects = append(r.subjects, match[1])
	}
	r.connected = r.connected || strings.Contains(string(text), "connected to the bus")
	return len(text), nil
}

// bare records the refusals of the plain client.
func (r *refusals) bare(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if match := refusedSubject.FindStringSubmatch(err.Error()); match != nil {
		r.others = append(r.others, match[1])
	}
}

func (r *refusals) isConnected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connected
}

func (r *refusals) ofBus() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.subjects)
}

func (r *refusals) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.subjects, r.others)
}

// part is a participant and its connections.
type part struct {
	*house
	t           *testing.T
	who         bus.Participant
	bus         *bus.Bus // nil means it is no program of Rehome
	asReader    *bus.Bus // of an operator, with the abilities of readers
	mine        *nats.Conn
	js          jetstream.JetStream
	bareContext context.Context // ends when something is refused to the two above
	refusals    *refusals
}

// join connects a participant that lacks a right.
func (h *house) join(t *testing.T, who bus.Participant, missing string) part {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p := part{house: h, t: t, who: who, bareContext: ctx, refusals: &refusals{}}
	user := userOf(who, missing)
	p.mine, p.js = h.connect(t, user, "_INBOX_"+who.String(), func(err error) {
		p.refusals.bare(err)
		cancel()
	})
	if who.Role == bus.RoleFunction {
		return p
	}
	log := slog.New(slog.NewTextHandler(p.refusals, &slog.HandlerOptions{Level: slog.LevelInfo}))
	p.bus = bustest.Connect(t, bus.Options{Name: who.String(), URL: h.url(user), Log: log, Prefix: h.prefix})
	expect.Eventually(t, "it is connected", p.refusals.isConnected)
	if who.Role == bus.RoleOperator {
		p.asReader = bustest.Connect(t, bus.Options{Name: string(bus.RoleReader), URL: h.url(user), Log: log, Prefix: h.prefix})
	}
	return p
}

// all runs steps in order until one fails or is refused.
func (p part) all(steps ...func(part) error) error {
	for _, step := range steps {
		if err := step(p); err != nil || len(p.refusals.list()) > 0 {
			return err
		}
	}
	return nil
}

// until runs something until done is closed. It cancels the run after a refusal, which the run may not have noticed yet.
func (p part) until(done <-chan struct{}, run func(context.Context) error) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), expect.Patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	for refused := false; !refused && ctx.Err() == nil; refused = len(p.refusals.list()) > 0 {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			return errors.New("it ended by itself")
		case <-done:
			cancel()
			return <-ended
		case <-time.After(10 * time.Millisecond):
		}
	}
	late := ctx.Err()
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	return late
}

// attend checks the streams.
func (p part) attend() error {
	found := make(chan struct{})
	err := p.until(found, func(ctx context.Context) error {
		once := sync.OnceFunc(func() { close(found) })
		return p.bus.FollowStreams(ctx, nil, func([]string) { once() })
	})
	if err == nil && len(p.refusals.list()) == 0 {
		err = p.bus.Ready()
	}
	if err == nil {
		_, err = p.bus.StatusFor(p.t.Context(), nil)
	}
	return err
}

// theirs returns the error of the plain client with the refused subjects, because the client does not know why a reply is
// missing.
func theirs(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		return fmt.Errorf("%w: %w", bus.ErrNotPermitted, err)
	}
	return err
}

// setUp creates all streams on an empty server, and again on a server that has them.
func (p part) setUp() error {
	names := []string{
		bus.StreamEvents, bus.StreamScopes, bus.StreamIntents, bus.StreamDead, bus.StreamLedger, bus.StreamRequests,
		bus.StreamMaintenances,
	}
	for i, name := range names {
		if p.prefix != "" {
			names[i] = strings.Replace(name, "REHOME", string(p.prefix)+"_REHOME", 1)
		}
		if err := p.raw.DeleteStream(p.t.Context(), names[i]); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			p.t.Fatal(err)
		}
	}
	expect.Eventually(p.t, "nothing is left of the streams", func() bool { // the server deletes their files later
		left, err := os.ReadDir(filepath.Join(p.store, "jetstream", "$G", "streams"))
		return err != nil || !slices.ContainsFunc(left, func(e os.DirEntry) bool { return slices.Contains(names, e.Name()) })
	})
	defer p.furnish(p.t)
	return p.all(part.setUpOnce, part.setUpOnce, part.listeners)
}

// listeners creates, changes, and removes the listener of a forwarder.
func (p part) listeners() error {
	ctx := p.t.Context()
	return errors.Join(p.bus.AddListener(ctx, bus.Listener{Name: "new"}), p.bus.RemoveListener(ctx, "new"))
}

// setUpOnce retries, like the command: the server may not have finished earlier work.
func (p part) setUpOnce() error {
	for end := time.Now().Add(expect.Patience); ; {
		err := p.bus.Setup(p.t.Context(), bus.Setup{Strategies: []string{strategy}})
		if err == nil || errors.Is(err, bus.ErrNotPermitted) || len(p.refusals.list()) > 0 || time.Now().After(end) {
			return err
		}
	}
}

// letter is an invalid message that goes to the dead letters.
func (p part) bury(stream, channel string) error {
	e := bustest.Event(p.t, schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "a"}})
	e.Channel, e.Sequence = channel, uint64(time.Now().UnixNano())
	return p.bus.Bury(p.t.Context(), stream, e, errors.New("an unreadable message"))
}

// watch publishes, buries invalid events, follows verdicts, and answers requests.
func (p part) watch() error {
	s := scope(p.t, "a", int(time.Now().UnixNano()))
	if err := p.bus.PublishAll(p.t.Context(), []schemas.Event{bustest.Delta(p.t, "a"), s}); err != nil {
		return err
	}
	if _, err := p.bus.AnsweredScopes(p.t.Context()); err != nil {
		return err
	}
	if err := p.bury(bus.StreamEvents, bustest.Delta(p.t, "a").Channel); err != nil {
		return err
	}
	if err := p.follow(bus.VerdictChannels, verdict(p.t, "pod-1")); err != nil || len(p.refusals.list()) > 0 {
		return err
	}
	return p.request()
}

// publishOthers publishes an event of each of the others that the participant may publish.
func (p part) publishOthers() error {
	for _, n := range others() {
		if p.who.Role != bus.RoleAll && !slices.Contains(n.Publishers(), p.who.Role) {
			continue
		}
		if _, err := p.bus.Publish(p.t.Context(), p.loose("rehome."+n.Name+".x")); err != nil {
			return err
		}
	}
	return nil
}

// pass publishes the request of a user.
func (p part) pass() error {
	_, err := p.bus.Publish(p.t.Context(), p.loose(fmt.Sprintf("rehome.request.http.%d", time.Now().UnixNano())))
	return err
}

// maintain publishes the intents and the event of a maintenance, follows verdicts, answers requests, and keeps a maintenance.
func (p part) maintain() error {
	ctx, name := p.t.Context(), fmt.Sprint("m-", time.Now().UnixNano())
	sequence, err := p.bus.IntentsSequence(ctx)
	if err != nil {
		return err
	}
	a := schemas.Intents{
		Profile: "default", Strategy: schemas.MaintenanceStrategy,
		Scope: schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: name, Event: name, Sequence: sequence},
		Intents: []schemas.Intent{{
			ID: name, Pod: schemas.PodRef{Namespace: "a", Name: "b", UID: "c"}, Node: "n", Expires: time.Now().Add(time.Minute),
		}},
	}
	if err := p.bus.Answer(ctx, bustest.Event(p.t, a), a); err != nil {
		return err
	}
	if e, err := p.bus.Intents(ctx, a.Channel()); err != nil || e.ID == "" {
		return errors.Join(err, fmt.Errorf("no intents on %s", a.Channel()))
	}
	if _, err := p.bus.Publish(ctx, p.loose("rehome.maintenance.kernel")); err != nil {
		return err
	}
	if err := p.follow(bus.VerdictChannels, verdict(p.t, "pod-1")); err != nil || len(p.refusals.list()) > 0 {
		return err
	}
	if err := p.request(); err != nil || len(p.refusals.list()) > 0 {
		return err
	}
	return p.keepOne(p.followMaintenances)
}

// request follows a request, publishes its receipt, and drops it.
func (p part) request() error {
	ctx := p.t.Context()
	asked := p.loose(fmt.Sprintf("rehome.request.batch.%d", time.Now().UnixNano()))
	bustest.Publish(p.t, p.admin, asked)
	done := make(chan struct{})
	var failed error
	err := p.until(done, func(ctx context.Context) error {
		return p.bus.FollowRequests(ctx, func(ctx context.Context, _ schemas.Event, _ time.Time, read func() schemas.Event) error {
			e := read()
			if e.ID != asked.ID {
				return nil
			}
			_, failed = p.bus.HasRequest(ctx, e)
			failed = errors.Join(failed, p.bus.DropRequest(ctx, e), p.bus.DropRequest(ctx, e)) // the second time it is gone
			close(done)
			return nil
		})
	})
	if err := errors.Join(err, failed); err != nil || len(p.refusals.list()) > 0 {
		return err
	}
	if _, err := p.bus.Publish(ctx, p.loose("rehome.receipt.batch.one")); err != nil {
		return err
	}
	_, err = p.bus.Receipt(ctx, "batch", "one")
	return err
}

// followMaintenances follows the maintenances until it has received all existing ones.
func (p part) followMaintenances() error {
	done := make(chan struct{})
	return p.until(done, func(ctx context.Context) error {
		return p.bus.Maintenances().Follow(ctx, func(string, *v1alpha1.NodeMaintenance) {}, func() { close(done) })
	})
}

// keepOne creates a maintenance, runs a step, and reads and removes the maintenance.
func (p part) keepOne(between func() error) error {
	ctx, name := p.t.Context(), fmt.Sprintf("node/%d", time.Now().UnixNano())
	m := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := p.bus.Maintenances().Put(ctx, m); err != nil {
		return err
	}
	if err := between(); err != nil || len(p.refusals.list()) > 0 {
		return err
	}
	m, err := p.bus.Maintenances().Get(ctx, name)
	if err != nil {
		return err
	}
	return p.bus.Maintenances().Delete(ctx, m)
}

// loose returns an event with the type of a channel, and with other data.
func (p part) loose(channel string) schemas.Event {
	e := bustest.Delta(p.t, "loose")
	e.Channel, e.ID, e.Type = channel, fmt.Sprint(time.Now().UnixNano()), "dev.rehome."+strings.Split(channel, ".")[1]+".v1"
	return e
}

// follow follows the history until another participant's event comes.
func (p part) follow(channels string, e schemas.Event) error {
	seen := make(chan struct{})
	e.ID = fmt.Sprint(time.Now().UnixNano())
	bustest.Publish(p.t, p.admin, e)
	return p.until(seen, func(ctx context.Context) error {
		q := bus.Query{Channels: []string{channels}, Since: time.Unix(1, 0), Follow: true}
		return p.bus.Events(ctx, q, func(got schemas.Event) error {
			if got.ID == e.ID {
				close(seen)
			}
			return nil
		})
	})
}

// followDeltas follows the history until a delta comes.
func (p part) followDeltas() error {
	return p.follow(bustest.DeltaChannels, bustest.Delta(p.t, "a"))
}

// decide pulls a scope and answers it, and buries an invalid scope.
func (p part) decide() error {
	if _, err := p.bus.StatusFor(p.t.Context(), []string{strategy}); err != nil {
		return err
	}
	node := fmt.Sprintf("node-%d", time.Now().UnixNano())
	bustest.Publish(p.t, p.admin, scope(p.t, node, 1))
	done := make(chan struct{})
	err := p.until(done, func(ctx context.Context) error {
		return p.bus.Work(ctx, bus.Work{Strategy: strategy}, func(ctx context.Context, e schemas.Event) error {
			if !strings.HasPrefix(e.ID, node) {
				return nil
			}
			if ok, err := p.bus.Current(ctx, e); err != nil || !ok {
				return errors.Join(err, fmt.Errorf("scope %s is not current", e.ID))
			}
			given, a := answer(p.t, node, e.Sequence, "pod-1")
			if err := p.bus.Answer(ctx, given, a); err != nil {
				return err
			}
			close(done)
			return nil
		})
	})
	if err != nil {
		return err
	}
	return p.bury(bus.StreamScopes, "rehome.scope.RemovePods.default.node.a")
}

// ask calls an external function that does not exist yet.
func (p part) ask() error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Second)
	defer cancel()
	_, _, err := p.bus.Ask(ctx, asksOn, scope(p.t, "a", 1))
	if errors.Is(err, delivery.ErrUnreachable) {
		return nil
	}
	return err
}

// act follows the table, publishes the verdict on an answer, records it in the ledger, and drops the answer.
func (p part) act() error {
	ctx := p.t.Context()
	node := fmt.Sprintf("node-%d", time.Now().UnixNano())
	given := give(p.t, p.admin, node, 1, "pod-1")
	done := make(chan struct{})
	var failed error
	err := p.until(done, func(ctx context.Context) error {
		return p.bus.FollowIntents(ctx, func(ctx context.Context, e schemas.Event) error {
			if e.ID != given.ID {
				return nil
			}
			failed = errors.Join(p.bus.DropIntents(ctx, e), p.bus.DropIntents(ctx, e)) // the second time it is gone
			close(done)
			return nil
		})
	})
	if err := errors.Join(err, failed); err != nil || len(p.refusals.list()) > 0 {
		return err
	}
	v := verdict(p.t, "pod-1")
	v.ID = node
	if _, err := p.bus.Publish(ctx, v); err != nil {
		return err
	}
	return p.all(part.accepted, part.remember, part.followLedger, func(p part) error { return p.bury(bus.StreamIntents, given.Channel) })
}

// followLedger reads the writes of other participants to the ledger.
func (p part) followLedger() error {
	heard := make(chan struct{})
	stop := sync.OnceFunc(func() { close(heard) })
	defer expect.Background(p.t, func(ctx context.Context) error { // until it follows
		for ctx.Err() == nil {
			_ = p.admin.Ledger().Put(ctx, "clear.a", nil)
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})()
	return p.until(heard, func(ctx context.Context) error {
		return p.bus.Ledger().Follow(ctx, "clear.", func(string, []byte) { stop() })
	})
}

// accepted reads an accepted request.
func (p part) accepted() error {
	name := fmt.Sprint(time.Now().UnixNano())
	request := bustest.Event(p.t, schemas.Request{Sender: "batch", Name: name, Reason: "test"})
	receipt := schemas.Receipt{Sender: "batch", Name: name, State: schemas.RequestAccepted}
	e := schematest.Event(p.t, request.Source, receipt, at, request)
	bustest.Publish(p.t, p.admin, request)
	bustest.Publish(p.t, p.admin, e)
	_, got, ok, err := p.bus.AcceptedRequest(p.t.Context(), "batch", name)
	if err == nil && (!ok || got.Name != name) {
		err = fmt.Errorf("request %s: accepted is %v, with the receipt %v", name, ok, got)
	}
	return err
}

// remember reads, writes, and deletes entries of the ledger.
func (p part) remember() error {
	ctx := p.t.Context()
	if _, err := p.bus.Ledger().Entries(ctx); err != nil {
		return err
	}
	if err := p.bus.Ledger().Put(ctx, "move.a", []byte("{}")); err != nil {
		return err
	}
	return p.bus.Ledger().Delete(ctx, "move.a")
}

// read reads past and live events, and the ledger.
func (p part) read() error {
	return p.all(part.followDeltas, func(p part) error {
		return p.bus.Events(p.t.Context(), bus.Query{Since: time.Unix(1, 0)}, func(schemas.Event) error { return nil })
	}, part.look, part.hear)
}

// look reads the ledger, the progress of the work, and the open requests and maintenances.
func (p part) look() error {
	ctx := p.t.Context()
	bustest.Publish(p.t, p.admin, p.loose(fmt.Sprintf("rehome.request.batch.%d", time.Now().UnixNano())))
	put(p.t, p.admin, wanted(fmt.Sprintf("node/open-%d", time.Now().UnixNano()), v1alpha1.Cordon))
	if _, err := p.bus.Ledger().Entries(ctx); err != nil {
		return err
	}
	if _, err := p.bus.Status(ctx); err != nil {
		return err
	}
	if err := p.bus.Space(ctx); err != nil {
		return err
	}
	if _, err := p.bus.DeadCounts(ctx); err != nil {
		return err
	}
	if _, err := p.bus.OpenRequests(ctx); err != nil {
		return err
	}
	_, err := p.bus.Maintenances().List(ctx)
	return err
}

// hear subscribes to everything.
func (p part) hear() error {
	answered, _ := answer(p.t, "a", 1, "pod-1")
	published := map[string]schemas.Event{
		bustest.DeltaChannels: bustest.Delta(p.t, "a"), bus.VerdictChannels: verdict(p.t, "a"), bus.IntentsChannels: answered,
		"rehome.receipt.>": p.loose("rehome.receipt.batch.two"), "rehome.maintenance.>": maintenance(p.t, "node/a"),
	}
	for _, n := range others() {
		published["rehome."+n.Name+".>"] = p.loose("rehome." + n.Name + ".x")
	}
	return p.listen(published)
}

// listen subscribes to published events without a stream.
func (p part) listen(published map[string]schemas.Event) error {
	p.t.Helper()
	missing, heard := map[string]bool{}, make(chan struct{})
	for _, e := range published {
		missing[e.Channel] = true
	}
	stop := sync.OnceFunc(func() { close(heard) })
	defer expect.Background(p.t, func(ctx context.Context) error { // until it listens
		for ctx.Err() == nil {
			for _, e := range published {
				e.ID = fmt.Sprint(time.Now().UnixNano())
				_, _ = p.admin.Publish(ctx, e)
			}
		}
		return nil
	})()
	return p.until(heard, func(ctx context.Context) error {
		return p.bus.Subscribe(ctx, slices.Collect(maps.Keys(published)), nil, func(e schemas.Event) error {
			if delete(missing, e.Channel); len(missing) == 0 {
				stop()
			}
			return nil
		})
	})
}

// forward listens under an existing name, reads its progress, and buries events that the sink rejects.
func (p part) forward() error {
	const name = "audit"
	if err := p.admin.RemoveListener(p.t.Context(), name); err != nil && !errors.Is(err, bus.ErrNoListener) {
		p.t.Fatal(err)
	}
	for _, channels := range [][]string{nil, {bustest.DeltaChannels}} {
		e := bustest.Delta(p.t, "refused")
		e.ID = fmt.Sprint(time.Now().UnixNano())
		bustest.Publish(p.t, p.admin, e)
		l := bus.Listener{Name: name, Channels: channels, Since: time.Now().Add(-time.Minute)}
		if err := p.admin.AddListener(p.t.Context(), l); err != nil {
			p.t.Fatal(err)
		}
		heard := make(chan struct{})
		err := p.until(heard, func(ctx context.Context) error {
			return p.bus.Listen(ctx, bus.Listener{Name: name, Existing: true}, func(_ context.Context, got schemas.Event) error {
				if got.ID == e.ID {
					close(heard)
					return schemas.ErrInvalid
				}
				return nil
			})
		})
		if err != nil || len(p.refusals.list()) > 0 {
			return err
		}
	}
	_, err := p.bus.Backlog(p.t.Context(), name)
	return err
}

// operate retries and drops dead letters of each kind, and writes to the ledger.
func (p part) operate() error {
	ctx := p.t.Context()
	node := fmt.Sprintf("node-%d", time.Now().UnixNano())
	answered, _ := answer(p.t, node, 1, "pod-1")
	for _, dead := range []struct {
		stream string
		event  schemas.Event
	}{
		{bus.StreamScopes, scope(p.t, node, 1)}, {bus.StreamIntents, answered},
		{bus.StreamEvents, bustest.Delta(p.t, node)}, {bus.StreamEvents, verdict(p.t, node)},
	} {
		dead.event.Sequence = uint64(time.Now().UnixMicro())
		if dead.stream == bus.StreamEvents { // which is retried as the history has it
			var err error
			if dead.event.Sequence, err = p.admin.Publish(ctx, dead.event); err != nil {
				p.t.Fatal(err)
			}
		}
		if err := p.admin.Bury(ctx, dead.stream, dead.event, errors.New("an unreadable message")); err != nil {
			p.t.Fatal(err)
		}
		numbers, err := p.bus.DeadNumbers(ctx, bus.DeadQuery{})
		if err != nil {
			return err
		}
		if _, err := p.bus.RetryDead(ctx, numbers[0]); err != nil {
			return err
		}
		if err := p.bus.DropDead(ctx, numbers[0]); !errors.Is(err, bus.ErrNoDeadLetter) {
			return err
		}
	}
	err := p.all(part.followDeltas, func(p part) error { return p.bus.Ledger().Put(ctx, "clear.a", nil) }, func(p part) error {
		return p.listen(map[string]schemas.Event{bus.ScopeChannels: scope(p.t, "a", 1)})
	})
	if err != nil {
		return err
	}
	p.bus = p.asReader // what readers do
	return p.all(part.look, part.hear)
}

// answer listens and replies like an external function.
func (p part) answer() error {
	s, err := p.mine.QueueSubscribe(asksOn, "workers", func(m *nats.Msg) { _ = m.Respond([]byte("{}")) })
	if err != nil {
		return err
	}
	defer func() { _ = s.Unsubscribe() }()
	if err := p.mine.FlushTimeout(time.Second); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.bareContext, 2*time.Second)
	defer cancel()
	_, err = p.nc.RequestWithContext(ctx, asksOn, []byte("{}"))
	if errors.Is(err, nats.ErrNoResponders) {
		err = nats.ErrTimeout
	}
	return theirs(err)
}

// send publishes a request and follows its receipt.
func (p part) send() error {
	if _, err := p.bus.Publish(p.t.Context(), p.loose(fmt.Sprintf("rehome.request.batch.%d", time.Now().UnixNano()))); err != nil {
		return err
	}
	return p.listen(map[string]schemas.Event{
		"rehome.receipt.batch.>": p.loose("rehome.receipt.batch.three"), bus.VerdictChannels: verdict(p.t, "a"),
	})
}
