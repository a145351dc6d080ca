package bus

import (
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// Role is what a participant does on the bus. It is also the [Options.Name] by which a process of Rehome connects.
type Role string

// The roles. [RoleAll] is `rehome run` with a bus elsewhere. Functions and senders are programs outside of Rehome, of which
// there can be several.
const (
	RoleSetup       Role = "setup"
	RoleWatcher     Role = "watcher"
	RoleFunctions   Role = "functions"
	RoleDispatcher  Role = "dispatcher"
	RoleActuator    Role = "actuator"
	RoleMaintenance Role = "maintenance"
	RoleAll         Role = "rehome"
	RoleReader      Role = "reader"
	RoleListener    Role = "listener"
	RoleForwarder   Role = "forwarder"
	RoleOperator    Role = "operator"
	RoleFunction    Role = "function"
	RoleSender      Role = "sender"
)

// Participant is somebody who takes part on the bus.
type Participant struct {
	Role Role
	// Name tells the functions, or the senders, apart. It is that of the strategy or of the sender. Others have none.
	Name string
	// Subject is where a function is asked. Others have none.
	Subject string
}

// String is the name by which files and inboxes of the participant begin, such as watcher or sender-batch.
func (p Participant) String() string {
	if p.Name == "" {
		return string(p.Role)
	}
	return string(p.Role) + "-" + schemas.Token(p.Name)
}

// Hosting is which strategies have functions, and where.
type Hosting struct {
	// BuiltIn are the strategies that `rehome functions` hosts.
	BuiltIn []string
	// Outside are the strategies of other programs, which the dispatcher asks. The dispatcher may also ask them about the
	// strategies of BuiltIn, except for requests and maintenances.
	Outside []string
	// Subjects are where it asks them, unless it asks over HTTP.
	Subjects []string
}

// dispatched are the strategies that the dispatcher may answer for. No policy can name those of requests and maintenances.
func (h Hosting) dispatched() []string {
	return slices.DeleteFunc(slices.Concat(h.BuiltIn, h.Outside), func(name string) bool {
		return name == schemas.RequestStrategy || name == schemas.MaintenanceStrategy
	})
}

// Rights are what a participant may do on the bus. Everything else is forbidden.
type Rights struct {
	Publish   []string // subjects, with wildcards
	Subscribe []string // subjects, with wildcards
	Reply     bool     // may answer each message that it gets, once
}

const (
	requestSubjects = schemas.Prefix + ".request."
	receiptSubjects = schemas.Prefix + ".receipt."
	// maintenanceIntents are the intents messages of maintenances.
	maintenanceIntents = schemas.Prefix + ".intents." + schemas.MaintenanceStrategy + ".>"
	// httpRequests are what the watcher asks for users of the cluster who asked it over HTTP.
	httpRequests = requestSubjects + "http.>"
)

// RightsOf are the least rights with which a participant can do all of its work. The subjects come in no order that means
// anything, none twice.
//
// A participant that may ask JetStream chooses the subject of the answer, which no server checks against its rights: a reader
// can have a stored event published again on any subject of the account of Rehome. A sender and a listener have accounts of
// their own, see [Participant.Account]; a listener and a function outside cannot publish at all.
//
// The table is made of what the methods of [Bus] send: a right that is missing here is an [ErrNotPermitted] there, and a
// right that is not needed fails a test.
func RightsOf(p Participant, h Hosting) Rights {
	inbox := "_INBOX_" + p.String() + ".>"
	switch p.Role {
	case RoleSetup:
		return rights(settingUp()).hears(inbox)
	case RoleWatcher:
		return rights(attending(), watching()).hears(inbox)
	case RoleFunctions:
		return rights(attending(), deciding(tokens(h.BuiltIn))).hears(inbox)
	case RoleDispatcher:
		return rights(attending(), deciding(tokens(h.dispatched())), h.Subjects).hears(inbox)
	case RoleActuator:
		return rights(attending(), acting()).hears(inbox)
	case RoleMaintenance:
		return rights(attending(), maintaining(), []string{maintenanceIntents}).hears(inbox)
	case RoleAll:
		return rights(attending(), settingUp(), watching(), deciding([]string{"*"}), acting(), maintaining(), h.Subjects).hears(inbox)
	case RoleReader:
		return rights(reading(StreamEvents), readingLedger(), readingStatus()).hears(inbox,
			DeltaChannels, IntentsChannels, VerdictChannels, receiptSubjects+">", MaintenanceChannels)
	case RoleListener:
		return Rights{Subscribe: []string{
			DeltaChannels, IntentsChannels, VerdictChannels, receiptSubjects + ">", MaintenanceChannels,
		}}
	case RoleForwarder:
		return rights(forwarding()).hears(inbox)
	case RoleOperator:
		return rights(operating(tokens(h.dispatched()))).hears(inbox, "_INBOX_"+string(RoleReader)+".>", ScopeChannels)
	case RoleFunction:
		return Rights{Subscribe: []string{p.Subject}, Reply: true}
	case RoleSender:
		token := schemas.Token(p.Name)
		return rights([]string{requestSubjects + token + ".>"}).hears(inbox, receiptSubjects+token+".>", VerdictChannels)
	}
	return Rights{}
}

// rights may publish on all of these.
func rights(lists ...[]string) Rights {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return Rights{Publish: slices.Compact(all)}
}

// hears adds what may be subscribed to.
func (r Rights) hears(subjects ...string) Rights {
	r.Subscribe = subjects
	return r
}

// attending is what every process does that runs: it looks whether the streams are there.
func attending() []string { return on("STREAM.INFO", allStreams()...) }

func settingUp() []string {
	return slices.Concat(
		on("STREAM.INFO", allStreams()...), on("STREAM.CREATE", allStreams()...), on("STREAM.UPDATE", allStreams()...),
		[]string{api + "CONSUMER.CREATE." + StreamScopes + ".>"},
	)
}

// watching is: deltas, scopes and receipts are published, verdicts and requests followed, requests dropped when answered, and
// those that come over HTTP passed on; what is wrong in the history is buried.
func watching() []string {
	return slices.Concat(
		[]string{DeltaChannels, ScopeChannels, receiptSubjects + ">", httpRequests, deadIn(StreamEvents)},
		reading(StreamEvents), reading(StreamRequests), dropping(StreamRequests), on("STREAM.INFO", StreamIntents),
		on("STREAM.MSG.GET", StreamEvents), // what a request was answered
	)
}

// tokens are the names of strategies as they stand in subjects.
func tokens(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = schemas.Token(name)
	}
	return all
}

// intentsOf are the subjects of the answers of one strategy.
func intentsOf(token string) string { return strings.TrimSuffix(IntentsChannels, ">") + token + ".>" }

// deciding is: scopes of some strategies are pulled, settled and, when nobody can work on them, buried; answers are compared
// and published.
func deciding(strategies []string) []string {
	subjects := slices.Concat(on("STREAM.INFO", StreamScopes, StreamIntents), on("STREAM.MSG.GET", StreamScopes, StreamIntents))
	for _, token := range strategies {
		subjects = append(subjects,
			api+"CONSUMER.INFO."+StreamScopes+"."+token, pulls(StreamScopes, token), "$JS.ACK."+StreamScopes+"."+token+".>",
			intentsOf(token), deadSubjects+StreamScopes+"."+token)
	}
	return subjects
}

// acting is: answers are followed and dropped, and those of requests compared with the requests; verdicts published, and moves
// remembered in the ledger.
func acting() []string {
	return slices.Concat(
		[]string{VerdictChannels, deadIn(StreamIntents)},
		reading(StreamIntents), dropping(StreamIntents), reading(StreamEvents), readingLedger(), writingLedger(),
		on("STREAM.MSG.GET", StreamEvents, StreamRequests), // an accepted request
	)
}

// maintaining is: maintenances are read and changed in their table; the intents of maintenances compared and published; events of
// maintenances and receipts published; verdicts followed; and requests followed, and dropped when answered.
func maintaining() []string {
	return slices.Concat(
		[]string{MaintenanceChannels, receiptSubjects + ">"},
		reading(StreamMaintenances), changingMaintenances(),
		on("STREAM.INFO", StreamIntents), on("STREAM.MSG.GET", StreamIntents, StreamEvents),
		reading(StreamEvents), reading(StreamRequests), dropping(StreamRequests),
	)
}

// forwarding is: a listener of any name, which goes on where it was, is made when it is new, and changed when it wants other
// channels. It is not removed: that is for people.
func forwarding() []string {
	return []string{
		api + "STREAM.INFO." + StreamEvents, api + "CONSUMER.INFO." + StreamEvents + ".*",
		api + "CONSUMER.CREATE." + StreamEvents + ".*", pulls(StreamEvents, "*"), "$JS.ACK." + StreamEvents + ".>",
		deadSubjects + StreamEvents + ".*",
	}
}

// operating is what people do: read everything, retry and drop dead letters, clear loop breakers, remove listeners.
func operating(strategies []string) []string {
	var intents []string
	for _, token := range strategies {
		intents = append(intents, intentsOf(token))
	}
	return slices.Concat(
		intents, []string{DeltaChannels, ScopeChannels, VerdictChannels},
		reading(StreamEvents), reading(StreamDead), dropping(StreamDead),
		on("STREAM.INFO", StreamScopes, StreamIntents), on("STREAM.MSG.GET", StreamScopes, StreamIntents, StreamEvents),
		readingLedger(), writingLedger(), readingStatus(),
	)
}

// readingStatus is: how far the work has come, and which requests and maintenances are open.
func readingStatus() []string {
	return slices.Concat(on("STREAM.INFO", allStreams()...), on("CONSUMER.LIST", allStreams()...), reading(StreamRequests),
		reading(StreamMaintenances))
}

// reading a stream takes a consumer of one's own, which is deleted afterwards.
func reading(stream string) []string {
	return []string{
		api + "STREAM.INFO." + stream, api + "CONSUMER.CREATE." + stream + ".>", pulls(stream, "*"),
		api + "CONSUMER.DELETE." + stream + ".*",
	}
}

// dropping a message tells one that is gone already from one that cannot be deleted by looking for it.
func dropping(stream string) []string {
	return []string{api + "STREAM.MSG.DELETE." + stream, api + "STREAM.MSG.GET." + stream, api + "STREAM.INFO." + stream}
}

// flowOfLedger is what the subjects begin with on which a reader of the ledger says that it has kept up.
const flowOfLedger = "$JS.FC." + StreamLedger

// readingLedger is done by a consumer that the server pushes to, and slows down by messages that are to be answered.
func readingLedger() []string {
	return []string{
		api + "STREAM.INFO." + StreamLedger, api + "CONSUMER.CREATE." + StreamLedger + ".>",
		api + "CONSUMER.DELETE." + StreamLedger + ".*", flowOfLedger + ".>",
	}
}

func writingLedger() []string {
	return []string{ledgerSubjects + ">", api + "STREAM.PURGE." + StreamLedger, api + "STREAM.INFO." + StreamLedger}
}

// changingMaintenances is: one is read, and stored or removed if nobody else has changed it.
func changingMaintenances() []string {
	return append(on("STREAM.MSG.GET", StreamMaintenances), api+"STREAM.INFO."+StreamMaintenances, maintenanceSubjects+">")
}

// on are the subjects by which a server is asked the same about several streams.
func on(question string, streams ...string) []string {
	subjects := make([]string, len(streams))
	for i, stream := range streams {
		subjects[i] = api + question + "." + stream
	}
	return subjects
}

// allStreams are all streams.
func allStreams() []string {
	names := streamNames()
	return names[:]
}

// deadIn are the subjects of dead letters from a stream.
func deadIn(stream string) string { return deadSubjects + stream + ".>" }
