package bus

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// Role is the role of a participant on the bus. It is also the [Options.Name] of a process of Rehome.
type Role string

// The roles. [RoleAll] is `rehome run` with an external bus. There can be several functions, senders, and forwarders.
const (
	RoleSetup       Role = "setup"
	RoleWatcher     Role = "watcher"
	RoleFunctions   Role = "functions"
	RoleDispatcher  Role = "dispatcher"
	RoleActuator    Role = "actuator"
	RoleMaintenance Role = "maintenance"
	RoleAPI         Role = "api"
	RoleAll         Role = "rehome"
	RoleReader      Role = "reader"
	RoleListener    Role = "listener"
	RoleForwarder   Role = "forwarder"
	RoleOperator    Role = "operator"
	RoleFunction    Role = "function"
	RoleSender      Role = "sender"
)

// polls reports whether a role reads streams without consumers. A server delivers the messages of a consumer to any subject that
// the consumer names. So only a process with all roles, which owns these subjects anyway, creates consumers to read.
func (r Role) polls() bool {
	return slices.Contains([]Role{RoleWatcher, RoleActuator, RoleMaintenance, RoleAPI, RoleReader, RoleOperator}, r)
}

// The streams. Streams whose names begin with KV_ are key-value buckets.
const (
	StreamScopes       = "REHOME_SCOPES"
	StreamIntents      = "REHOME_INTENTS"
	StreamRequests     = "REHOME_REQUESTS"
	StreamEvents       = "REHOME_EVENTS"
	StreamDead         = "REHOME_DEAD"
	StreamLedger       = "KV_REHOME_LEDGER"
	StreamMaintenances = "KV_REHOME_MAINTENANCES"
)

// Noun is one kind of message on the bus: the subjects that carry it, the stream that stores it, and the roles that use it.
// The subjects of each stream and the rights of each role derive from the table of nouns.
type Noun struct {
	// Name is the name of the kind. Subjects begin with rehome. and Name, except the keys of buckets. [schemas.Subjects] lists the
	// subjects of events.
	Name string
	// Stream is the name of the stream that stores its messages.
	Stream string
	// Type is the type of its events. It is empty if its messages are not events.
	Type string

	publish []Role // write to its subjects, or to the keys of its bucket. For events it is empty in the table, see withPublishers
	follow  []Role // read its stream in order, and continue with new messages
	live    []Role // subscribe to its subjects
	work    []Role // take its messages from the consumer of their strategy
	get     []Role // read messages of its stream without a consumer
	drop    []Role // remove single messages of its stream
}

// Nouns returns the table.
func Nouns() []Noun { return slices.Clone(table) }

//nolint:gochecknoglobals // a table that nothing changes
var table = withPublishers(rows())

// withPublishers adds the publishers of events, which their types define, see [schemas.Publishers]. rights.go allows each of them
// only the subjects of its own strategies. An event type without a row is history that every listener may read.
func withPublishers(all []Noun) []Noun {
	for _, typ := range schemas.EventTypes() {
		i := slices.IndexFunc(all, func(n Noun) bool { return n.Type == typ })
		if i < 0 {
			i = len(all)
			all = append(all, Noun{
				Name: schemas.NounOf(typ), Stream: StreamEvents, Type: typ, live: []Role{RoleAPI, RoleReader, RoleListener, RoleOperator},
			})
		}
		for _, role := range schemas.Publishers(typ) {
			all[i].publish = append(all[i].publish, Role(role))
		}
	}
	return all
}

// rows returns the nouns of the table.
func rows() []Noun {
	return []Noun{{
		Name: "delta", Stream: StreamEvents, Type: schemas.DeltaType,
		live: []Role{RoleAPI, RoleReader, RoleListener, RoleOperator},
	}, {
		Name: "scope", Stream: StreamScopes, Type: schemas.ScopeType,
		work: []Role{RoleFunctions, RoleDispatcher},
		get:  []Role{RoleFunctions, RoleDispatcher, RoleOperator},
		live: []Role{RoleOperator},
	}, {
		Name: "intents", Stream: StreamIntents, Type: schemas.IntentsType,
		follow: []Role{RoleActuator},
		drop:   []Role{RoleActuator},
		get:    []Role{RoleFunctions, RoleDispatcher, RoleMaintenance, RoleOperator},
		live:   []Role{RoleAPI, RoleReader, RoleListener, RoleOperator},
	}, {
		Name: "verdict", Stream: StreamEvents, Type: schemas.VerdictType,
		follow: []Role{RoleWatcher, RoleMaintenance},
		live:   []Role{RoleAPI, RoleReader, RoleListener, RoleSender, RoleOperator},
		get:    []Role{RoleWatcher, RoleMaintenance, RoleAPI, RoleReader, RoleOperator},
	}, {
		Name: "request", Stream: StreamRequests, Type: schemas.RequestType,
		follow: []Role{RoleWatcher, RoleMaintenance},
		drop:   []Role{RoleWatcher, RoleMaintenance},
		get:    []Role{RoleWatcher, RoleMaintenance, RoleActuator, RoleAPI, RoleReader, RoleOperator},
	}, {
		Name: "receipt", Stream: StreamEvents, Type: schemas.ReceiptType,
		get:  []Role{RoleWatcher, RoleMaintenance, RoleActuator, RoleAPI, RoleOperator},
		live: []Role{RoleAPI, RoleReader, RoleListener, RoleSender, RoleOperator},
	}, {
		Name: "maintenance", Stream: StreamEvents, Type: schemas.MaintenanceType,
		live: []Role{RoleAPI, RoleReader, RoleListener, RoleOperator},
	}, {
		Name: "dead", Stream: StreamDead,
		publish: []Role{RoleWatcher, RoleFunctions, RoleDispatcher, RoleActuator, RoleForwarder},
		get:     []Role{RoleOperator},
		drop:    []Role{RoleOperator},
	}, {
		Name: "record", Stream: StreamLedger,
		publish: []Role{RoleActuator, RoleOperator},
		follow:  []Role{RoleActuator},
		get:     []Role{RoleActuator, RoleAPI, RoleReader, RoleOperator},
	}, {
		Name: "nodemaintenance", Stream: StreamMaintenances,
		publish: []Role{RoleMaintenance},
		follow:  []Role{RoleMaintenance},
		get:     []Role{RoleMaintenance, RoleAPI, RoleReader, RoleOperator},
	}}
}

// Publishers returns the roles that write messages of the noun.
func (n Noun) Publishers() []Role { return n.publish }

// Readers returns the roles that read messages of the noun, sorted.
func (n Noun) Readers() []Role {
	all := slices.Concat(n.follow, n.live, n.work, n.get)
	slices.Sort(all)
	return slices.Compact(all)
}

// The subjects of all messages of some nouns, as filters.
const (
	ScopeChannels   = schemas.Prefix + ".scope.>"
	IntentsChannels = schemas.Prefix + ".intents.>"
	VerdictChannels = schemas.Prefix + ".verdict.>"
)

// prefix returns the beginning of all subjects of the noun, including the dot.
func (n Noun) prefix() string {
	if n.isBucket() {
		return subject(n.Stream, "")
	}
	return schemas.Prefix + "." + n.Name + "."
}

// isBucket reports whether the noun is an entry of a key-value bucket.
func (n Noun) isBucket() bool { return strings.HasPrefix(n.Stream, "KV_") }

// streams returns the names of all streams, in display order.
func streams() []string {
	return []string{StreamScopes, StreamIntents, StreamRequests, StreamEvents, StreamDead, StreamLedger, StreamMaintenances}
}

// subjectsOf returns the subjects that a stream stores.
func subjectsOf(stream string) []string {
	var subjects []string
	for _, n := range table {
		if n.Stream == stream {
			subjects = append(subjects, n.prefix()+">")
		}
	}
	return subjects
}

// nounOf returns the noun of a subject, and the tokens after the name of the noun. ok is false if no stream stores the subject.
func nounOf(subject string) (n Noun, tokens []string, ok bool) {
	for _, n := range table {
		if rest, found := strings.CutPrefix(subject, n.prefix()); found && rest != "" {
			return n, strings.Split(rest, "."), true
		}
	}
	return Noun{}, nil, false
}

// streamOf returns the stream that stores a subject. Empty means none does.
func streamOf(subject string) string {
	n, _, _ := nounOf(subject)
	return n.Stream
}

// strategyOf returns the token of the strategy in the subject of a scope or of intents. It is empty for any other subject.
func strategyOf(subject string) string {
	if n, tokens, ok := nounOf(subject); ok && (n.Type == schemas.ScopeType || n.Type == schemas.IntentsType) {
		return tokens[0]
	}
	return ""
}

// Prefix separates installations that share an account of a NATS server. The names of their streams and their subjects begin with
// it. The code, metrics, and events of Rehome use names without it. The zero value is no prefix.
//
//	rehome.scope.S.P.node.n1    eu1.rehome.scope.S.P.node.n1
//	REHOME_SCOPES               eu1_REHOME_SCOPES
//	KV_REHOME_LEDGER            KV_eu1_REHOME_LEDGER
type Prefix string

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9-]{0,32}$`)

// Check returns an error for a prefix that cannot be part of the name of a stream. Names without a prefix begin with rehome or
// KV, so these two would be added again to names that have them.
func (p Prefix) Check() error {
	if !validPrefix.MatchString(string(p)) || p == schemas.Prefix || p == "KV" {
		return fmt.Errorf("want at most 32 letters, digits, and hyphens, such as eu1, but not rehome or KV, got %q", string(p))
	}
	return nil
}

// stream returns the name of a stream or a bucket on the server. It returns other names unchanged.
func (p Prefix) stream(name string) string {
	if rest, isBucket := strings.CutPrefix(name, "KV_"); isBucket {
		return "KV_" + p.stream(rest)
	}
	if p == "" || !slices.ContainsFunc(streams(), func(s string) bool { return strings.TrimPrefix(s, "KV_") == name }) {
		return name
	}
	return string(p) + "_" + name
}

// subject returns the subject on the server of a channel, a key of a bucket, or a JetStream request. It returns other subjects
// unchanged.
func (p Prefix) subject(s string) string {
	switch first, rest, _ := strings.Cut(s, "."); {
	case p == "":
		return s
	case first == schemas.Prefix:
		return string(p) + "." + s
	case first == "$KV" || first == "$JS":
		tokens := strings.Split(rest, ".")
		for i := range tokens {
			tokens[i] = p.stream(tokens[i])
		}
		return first + "." + strings.Join(tokens, ".")
	}
	return s
}

func (p Prefix) subjects(all []string) []string {
	if p == "" {
		return all
	}
	mapped := make([]string, len(all))
	for i, s := range all {
		mapped[i] = p.subject(s)
	}
	return mapped
}

// cut removes the prefix from a name or a subject.
func (p Prefix) cut(s string) string {
	if p == "" {
		return s
	}
	if rest, isKey := strings.CutPrefix(s, "$KV."+string(p)+"_"); isKey {
		return "$KV." + rest
	}
	if rest, isBucket := strings.CutPrefix(s, "KV_"+string(p)+"_"); isBucket {
		return "KV_" + rest
	}
	return strings.TrimPrefix(strings.TrimPrefix(s, string(p)+"_"), string(p)+".")
}

// prefixed calls JetStream with the stream names and subjects on the server.
type prefixed struct {
	jetstream.JetStream
	prefix Prefix
}

func (j prefixed) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	return j.JetStream.Stream(ctx, j.prefix.stream(name))
}

func (j prefixed) config(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Name, c.Subjects = j.prefix.stream(c.Name), j.prefix.subjects(c.Subjects)
	sources := make([]*jetstream.StreamSource, len(c.Sources))
	for i, s := range c.Sources {
		source := *s
		source.Name, sources[i] = j.prefix.stream(s.Name), &source
	}
	c.Sources = sources
	return c
}

func (j prefixed) CreateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	return j.JetStream.CreateStream(ctx, j.config(c))
}

func (j prefixed) UpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	return j.JetStream.UpdateStream(ctx, j.config(c))
}

func (j prefixed) DeleteStream(ctx context.Context, name string) error {
	return j.JetStream.DeleteStream(ctx, j.prefix.stream(name))
}

func (j prefixed) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	return j.JetStream.Consumer(ctx, j.prefix.stream(stream), name)
}

func (j prefixed) CreateOrUpdateConsumer(
	ctx context.Context, stream string, c jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	c.FilterSubject = j.prefix.subject(c.FilterSubject)
	return j.JetStream.CreateOrUpdateConsumer(ctx, j.prefix.stream(stream), c)
}

func (j prefixed) DeleteConsumer(ctx context.Context, stream, name string) error {
	return j.JetStream.DeleteConsumer(ctx, j.prefix.stream(stream), name)
}

func (j prefixed) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	return j.JetStream.KeyValue(ctx, j.prefix.stream(bucket))
}

func (j prefixed) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return j.JetStream.PublishMsg(ctx, j.message(m), o...)
}

func (j prefixed) PublishMsgAsync(m *nats.Msg, o ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	return j.JetStream.PublishMsgAsync(j.message(m), o...)
}

func (j prefixed) message(m *nats.Msg) *nats.Msg {
	return &nats.Msg{Subject: j.prefix.subject(m.Subject), Header: m.Header, Data: m.Data}
}
