package bus

import (
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/schemas"
)

// Participant is a program or a user on the bus.
type Participant struct {
	Role Role
	// Name distinguishes functions, senders, and forwarders. It is the name of the strategy, the sender, or the listener. It is
	// empty for other roles.
	Name string
	// Subject is the NATS subject on which a function listens. It is empty for other roles.
	Subject string
}

// String returns the prefix of the participant's files and inboxes, such as watcher or sender-batch.
func (p Participant) String() string {
	if p.Name == "" {
		return string(p.Role)
	}
	return string(p.Role) + "-" + schemas.Token(p.Name)
}

// Account is the account of the streams, and of participants without their own account, on a server with keys for participants.
const Account = "REHOME"

// Account returns the account of the participant. A participant that publishes and creates no consumers has its own account, with
// the imports of [Rights.Imports]. It may choose any reply subject, and the server sends the reply in the account of the
// participant, which has no streams. A listener publishes nothing, and a function only replies.
//
// The watcher, the actuator, and maintenance share the account of the streams. A message that one account publishes into another
// is not exported to a third account by nats-server, so senders and readers would not receive their events.
func (p Participant) Account() string {
	switch p.Role {
	case RoleSetup, RoleWatcher, RoleActuator, RoleMaintenance, RoleAll, RoleListener, RoleFunction:
		return Account
	}
	return Account + "_" + p.String()
}

// Hosting says which strategies have functions, and where they run.
type Hosting struct {
	// BuiltIn are the strategies that `rehome functions` hosts.
	BuiltIn []string
	// Outside are the strategies of other programs, whose functions the dispatcher calls. The dispatcher may also call them for
	// the strategies of BuiltIn, except for requests and maintenances.
	Outside []string
	// Subjects are the NATS subjects of these functions. It is empty if the dispatcher calls them over HTTP.
	Subjects []string
	// Prefix is [Options.Prefix] of all participants.
	Prefix Prefix
}

// Rights are the permissions of a participant on the bus. Everything else is forbidden.
type Rights struct {
	Publish   []string // subjects, with wildcards
	Subscribe []string // subjects, with wildcards
	Reply     bool     // may reply to each received message, once
}

// Imports returns what a participant with its own account imports from [Account]: services to publish on, and streams to
// subscribe to. A service also covers the request for information about JetStream, even if the participant may not send it.
// Otherwise the server would answer such requests from the account of the participant, which has no JetStream.
func (r Rights) Imports() (services, streams []string) {
	services = withoutCovered(append([]string{server.JSApiAccountInfo}, r.Publish...))
	streams = slices.DeleteFunc(slices.Clone(r.Subscribe), func(s string) bool { return strings.HasPrefix(s, inboxes) })
	return services, streams
}

// AnswersOften reports whether JetStream answers a request on a subject with several messages.
func AnswersOften(subject string) bool { return strings.HasPrefix(subject, api+"CONSUMER.MSG.NEXT.") }

// RightsOf returns the minimal rights for all work of a participant, from the table of [Nouns]. The subjects come in no
// particular order, without duplicates.
//
// A test takes each of these rights away and expects an [ErrNotPermitted] from a method of [Bus].
func RightsOf(p Participant, h Hosting) Rights {
	if p.Role == RoleFunction {
		return Rights{Subscribe: []string{p.Subject}, Reply: true}
	}
	roles := []Role{p.Role}
	if p.Role == RoleAll {
		roles = []Role{RoleSetup, RoleWatcher, RoleFunctions, RoleDispatcher, RoleActuator, RoleMaintenance, RoleAPI}
		h.BuiltIn, h.Outside = []string{anyStrategy}, nil // a policy names its strategies later
	}
	var r Rights
	for _, role := range roles {
		r.Publish = append(r.Publish, asking(Participant{Role: role, Name: p.Name}, h)...)
		for _, n := range Nouns() {
			r.add(n, Participant{Role: role, Name: p.Name}, h, p.Role.polls())
		}
	}
	r.Publish, r.Subscribe = withoutCovered(h.Prefix.subjects(r.Publish)), withoutCovered(h.Prefix.subjects(r.Subscribe))
	if len(r.Publish) > 0 {
		r.Subscribe = append(r.Subscribe, inbox(p.String())+".>")
	}
	if p.Role == RoleOperator { // a person who also does what readers do
		r.Subscribe = append(r.Subscribe, inbox(string(RoleReader))+".>")
	}
	return r
}

// inboxes is the prefix of reply subjects.
const inboxes = "_INBOX_"

// inbox returns the prefix of the reply subjects of the participant.
func inbox(name string) string { return inboxes + schemas.Token(name) }

// api is the prefix of requests about streams and consumers.
const api = "$JS.API."

// asking returns the requests about streams that a participant sends, independent of the nouns.
func asking(p Participant, h Hosting) []string {
	switch p.Role {
	case RoleSetup:
		all := slices.Concat(on("STREAM.INFO"), on("STREAM.CREATE"), on("STREAM.UPDATE"),
			[]string{api + "CONSUMER.CREATE." + StreamScopes + ".>"})
		for _, question := range []string{"INFO", "CREATE", "DELETE"} { // of forwarders
			all = append(all, api+"CONSUMER."+question+"."+StreamEvents+".*")
		}
		return all
	case RoleDispatcher:
		return append(on("STREAM.INFO"), h.Subjects...)
	case RoleWatcher, RoleFunctions, RoleActuator, RoleMaintenance:
		return on("STREAM.INFO")
	case RoleReader, RoleAPI, RoleOperator:
		return slices.Concat(on("STREAM.INFO"), on("CONSUMER.LIST"), []string{server.JSApiAccountInfo})
	case RoleForwarder: // whose consumer the setup key makes
		name := schemas.Token(p.Name)
		return []string{
			api + "STREAM.INFO." + StreamEvents, api + "CONSUMER.INFO." + StreamEvents + "." + name,
			pulls(StreamEvents, name), "$JS.ACK." + StreamEvents + "." + name + ".>",
		}
	}
	return nil
}

// on returns one request for each stream.
func on(question string) []string {
	subjects := streams()
	for i, stream := range subjects {
		subjects[i] = api + question + "." + stream
	}
	return subjects
}

// pulls returns the subject of requests for messages of a consumer.
func pulls(stream, consumer string) string {
	return api + "CONSUMER.MSG.NEXT." + stream + "." + consumer
}

// add adds the rights for a noun. A process either polls streams or creates consumers.
func (r *Rights) add(n Noun, p Participant, h Hosting, polls bool) {
	may := func(roles []Role, questions ...string) bool {
		if !slices.Contains(roles, p.Role) {
			return false
		}
		for _, q := range questions {
			r.Publish = append(r.Publish, api+q)
		}
		return true
	}
	own := n.own(p, h)
	if may(n.publish) {
		r.Publish = append(r.Publish, own...)
	}
	switch {
	case may(n.live) && p.Role == RoleSender:
		r.Subscribe = append(r.Subscribe, own...)
	case may(n.live):
		r.Subscribe = append(r.Subscribe, n.prefix()+">")
	}
	may(n.get, "STREAM.MSG.GET."+n.Stream)
	// Deleting a missing message and lacking the right to delete give different results: the client looks for the message.
	may(n.drop, "STREAM.MSG.DELETE."+n.Stream, "STREAM.MSG.GET."+n.Stream)
	switch {
	case polls || n.Stream == StreamMaintenances: // a small table, which every process polls
		if may(n.follow, "STREAM.MSG.GET."+n.Stream) {
			r.Subscribe = append(r.Subscribe, n.prefix()+">")
		}
	case may(n.follow, "CONSUMER.CREATE."+n.Stream+".>", "CONSUMER.DELETE."+n.Stream+".*"):
		r.Publish = append(r.Publish, pulls(n.Stream, "*"))
	}
	if n.Stream == StreamLedger && p.Role != RoleOperator {
		may(n.publish, "STREAM.PURGE."+n.Stream)
	}
	if may(n.work) {
		for _, token := range strategies(p.Role, h) {
			r.Publish = append(r.Publish, api+"CONSUMER.INFO."+n.Stream+"."+token, pulls(n.Stream, token),
				"$JS.ACK."+n.Stream+"."+token+".>")
		}
	}
}

// own returns the subjects of a noun that the participant may publish on, and that a sender may subscribe to.
//
//nolint:gocyclo // a flat list of rules
func (n Noun) own(p Participant, h Hosting) (subjects []string) {
	rest := []string{">"}
	switch byRole := strategies(p.Role, h); {
	case n.Name == "intents" && byRole != nil:
		rest = nil
		for _, token := range byRole {
			rest = append(rest, token+".>")
		}
	case p.Role == RoleSender && n.Stream != StreamEvents, p.Role == RoleSender && n.Name == "receipt":
		rest = []string{schemas.Token(p.Name) + ".>"}
	case n.Name == "record" && p.Role == RoleOperator: // requests to close circuit breakers, but no records of moves
		rest = []string{"clear.>"}
	case n.Name == "request": // the API passes on the requests of users
		rest = []string{"http.>"}
	case n.Name == "dead" && p.Role == RoleWatcher:
		rest = []string{StreamEvents + ".>"}
	case n.Name == "dead" && p.Role == RoleForwarder:
		rest = []string{StreamEvents + "." + schemas.Token(p.Name)}
	case n.Name == "dead" && p.Role == RoleActuator:
		rest = []string{StreamIntents + ".>"}
	case n.Name == "dead":
		rest = nil
		for _, token := range byRole {
			rest = append(rest, StreamScopes+"."+token)
		}
	}
	for _, r := range rest {
		subjects = append(subjects, n.prefix()+r)
	}
	return subjects
}

// anyStrategy stands for all strategies in [Hosting].
const anyStrategy = "*"

// strategies returns the tokens of the strategies whose scopes a role answers. nil means none. No policy can name the strategies
// of requests and maintenances, so the dispatcher never answers their scopes.
func strategies(role Role, h Hosting) (list []string) {
	switch role {
	case RoleFunctions:
		list = h.BuiltIn
	case RoleDispatcher, RoleOperator:
		list = slices.DeleteFunc(slices.Concat(h.BuiltIn, h.Outside), func(name string) bool {
			return name == schemas.RequestStrategy || name == schemas.MaintenanceStrategy
		})
	case RoleMaintenance:
		list = []string{schemas.MaintenanceStrategy}
	default:
		return nil
	}
	all := make([]string, len(list))
	for i, name := range list {
		if all[i] = name; name != anyStrategy {
			all[i] = schemas.Token(name)
		}
	}
	return all
}

// withoutCovered removes subjects that another subject of the list covers.
func withoutCovered(subjects []string) []string {
	slices.Sort(subjects)
	subjects = slices.Compact(subjects)
	all := slices.Clone(subjects)
	return slices.DeleteFunc(subjects, func(s string) bool {
		return slices.ContainsFunc(all, func(by string) bool { return by != s && server.SubjectMatchesFilter(s, by) })
	})
}
