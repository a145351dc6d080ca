package schemas_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

// These tests check the rules of AsyncAPI 3.0 that readers of the document depend on.

func asyncAPI(t *testing.T) place {
	t.Helper()
	return open(t, "asyncapi.yaml")
}

// Channels without events: dead letters, and requests and replies outside of the subjects of Rehome.
const (
	deadLetters = "deadLetters"
	questions   = "questions"
	replies     = "replies"
)

// published are the channels of events.
func published(t *testing.T) []entry {
	t.Helper()
	return slices.DeleteFunc(asyncAPI(t).get("channels").each(), func(c entry) bool {
		return slices.Contains([]string{deadLetters, questions, replies}, c.name)
	})
}

var parameter = regexp.MustCompile(`\{([a-z]+)\}`)

func TestAsyncAPIReferences(t *testing.T) {
	d := asyncAPI(t)
	if got := d.get("asyncapi").text(); got != "3.0.0" {
		t.Errorf("asyncapi is %q, want 3.0.0", got)
	}
	sameSet(t, "top level", d.names(),
		[]string{"asyncapi", "info", "defaultContentType", "channels", "operations", "components"})
	for _, field := range []string{"title", "version", "description"} {
		if d.get("info").get(field).text() == "" {
			t.Errorf("info has no %s", field)
		}
	}
	refs := d.references()
	if len(refs) == 0 {
		t.Error("no references found")
	}
	for _, ref := range refs {
		if _, err := d.resolve(t, ref); err != nil {
			t.Error(err)
		}
	}
}

func TestAsyncAPIChannelParameters(t *testing.T) {
	for _, c := range asyncAPI(t).get("channels").each() {
		var inAddress []string
		for _, m := range parameter.FindAllStringSubmatch(c.get("address").text(), -1) {
			inAddress = append(inAddress, m[1])
		}
		sameSet(t, "parameters of "+c.name, c.get("parameters").names(), inAddress)
		for _, p := range c.get("parameters").each() {
			described := p.follow(t)
			if described.get("description").text() == "" {
				t.Errorf("%s: parameter %s has no description", c.name, p.name)
			}
			for _, field := range described.names() {
				if !slices.Contains([]string{"enum", "default", "description", "examples", "location"}, field) {
					t.Errorf("%s: parameter %s has the field %s, which AsyncAPI does not know", c.name, p.name, field)
				}
			}
		}
	}
}

func TestAsyncAPIParameterValues(t *testing.T) {
	parameters := asyncAPI(t).get("components").get("parameters")
	aspects := map[string][]string{}
	for _, kind := range schemas.DeltaKinds() {
		object, aspect, _ := strings.Cut(string(kind), ".")
		aspects[object] = append(aspects[object], aspect)
	}
	sameSet(t, "aspects of nodes", parameters.get("nodeAspect").enum(t), aspects["node"])
	sameSet(t, "aspects of pods", parameters.get("podAspect").enum(t), aspects["pod"])
	sameSet(t, "outcomes", parameters.get("outcome").enum(t), asStrings(schemas.Outcomes()))
	sameSet(t, "kinds of scopes", parameters.get("kind").enum(t), valuesOf(t, "ScopeKind"))
}

// matches reports whether a NATS subject belongs to a channel.
func matches(t *testing.T, channel place, subject string) bool {
	t.Helper()
	pattern := regexp.QuoteMeta(channel.get("address").text())
	for _, p := range channel.get("parameters").each() {
		token := legalToken.String()[1 : len(legalToken.String())-1]
		if values := p.enum(t); len(values) > 0 {
			token = strings.Join(values, "|")
		}
		pattern = strings.Replace(pattern, regexp.QuoteMeta("{"+p.name+"}"), "("+token+")", 1)
	}
	return regexp.MustCompile("^" + pattern + "$").MatchString(subject)
}

func TestAsyncAPIChannelsOfTheExamples(t *testing.T) {
	channels := published(t)
	var used, want []string
	for _, e := range exampleEvents(t) {
		var on, carrying []string
		for _, c := range channels {
			if !matches(t, c.place, e.Channel) {
				continue
			}
			on = append(on, c.name)
			for _, m := range c.get("messages").each() {
				carrying = append(carrying, m.follow(t).get("name").text())
			}
		}
		if len(on) != 1 || !slices.Equal(carrying, []string{e.Type}) {
			t.Errorf("%s on %s: channels %q carry %q, want one channel that carries it alone", e.Type, e.Channel, on, carrying)
		}
		used = append(used, on...)
	}
	slices.Sort(used)
	for _, c := range channels {
		want = append(want, c.name)
	}
	sameSet(t, "channels with an example", slices.Compact(used), want)
}

func TestAsyncAPIMessages(t *testing.T) {
	var names []string
	for _, m := range asyncAPI(t).get("components").get("messages").each() {
		if slices.Contains([]string{"deadLetter", "nothing", "refusal"}, m.name) {
			continue // not an event
		}
		typ := m.get("name").text()
		names = append(names, typ)
		if got := m.get("headers").get("properties").get("ce-type").get("const").text(); got != typ {
			t.Errorf("message %s: ce-type is %q, want %q", m.name, got, typ)
		}
		sameSet(t, "traits of message "+m.name, m.get("traits").references(), []string{"#/components/messageTraits/cloudEvent"})
		want, err := schemas.Schema(typ)
		if err != nil {
			t.Error(err)
			continue
		}
		payload := m.get("payload")
		if got := payload.get("schemaFormat").text(); got != "application/schema+json;version=draft-2020-12" {
			t.Errorf("message %s: schemaFormat is %q", m.name, got)
		}
		file := payload.get("schema").follow(t).file
		got, err := schemas.Files.ReadFile(file)
		if err != nil || string(got) != string(want) {
			t.Errorf("message %s: the payload is described by %s, error %v, want the schema of %s", m.name, file, err, typ)
		}
	}
	sameSet(t, "messages", names, eventTypes(t))
}

func TestAsyncAPIHeaders(t *testing.T) {
	headers := asyncAPI(t).get("components").get("messageTraits").get("cloudEvent").get("headers")
	envelope := schemaOf(t, "event")
	withPrefix := func(attributes []string) []string {
		var all []string
		for _, a := range attributes {
			if a != "data" { // the body of the message
				all = append(all, "ce-"+a)
			}
		}
		return all
	}
	sameSet(t, "headers", headers.get("properties").names(), withPrefix(envelope.get("properties").names()))
	sameSet(t, "required headers", headers.get("required").strings(), withPrefix(envelope.get("required").strings()))
	for _, h := range headers.get("properties").each() {
		if h.get("description").text() == "" {
			t.Errorf("header %s has no description", h.name)
		}
	}
}

func TestAsyncAPIOperations(t *testing.T) {
	d := asyncAPI(t)
	senders, receivers := map[string]int{}, map[string]int{}
	want := map[string]int{}
	for _, o := range d.get("operations").each() {
		channel := o.get("channel").get("$ref").text()
		switch action := o.get("action").text(); action {
		case "send":
			senders[channel]++
		case "receive":
			receivers[channel]++
		default:
			t.Errorf("%s: action is %q, want send or receive", o.name, action)
		}
		for _, ref := range o.get("messages").references() {
			if !strings.HasPrefix(ref, channel+"/messages/") {
				t.Errorf("%s: message %s is not one of its channel %s", o.name, ref, channel)
			}
		}
		role := o.get("tags").each()[0].get("name").text()
		if !slices.Contains([]string{"watcher", "function", "dispatcher", "actuator", "maintenance", "listener", "requester"}, role) ||
			!strings.HasPrefix(o.name, role) {
			t.Errorf("%s: role is %q", o.name, role)
		}
		sameSet(t, "NATS binding of "+o.name, o.get("bindings").follow(t).get("nats").names(), []string{"bindingVersion"})
	}
	for _, c := range d.get("channels").each() {
		if c.name == replies { // part of a request
			continue
		}
		ref := "#/channels/" + c.name
		want[ref] = 1
		if receivers[ref] == 0 {
			t.Errorf("%s: no receiver", c.name)
		}
	}
	want["#/channels/"+deadLetters] = 3                            // all roles with a consumer
	want["#/channels/intents"], want["#/channels/receipts"] = 2, 2 // maintenance, too
	same(t, "roles that send", senders, want)
}

func TestSubjectsMatchTheChannels(t *testing.T) {
	var got, want []string
	for _, typ := range schemas.EventTypes() {
		for _, subject := range schemas.Subjects(typ) {
			got = append(got, typ+" on "+subject)
		}
	}
	for _, c := range published(t) {
		subject := parameter.ReplaceAllStringFunc(c.get("address").text(), func(p string) string {
			return strings.ToUpper(strings.Trim(p, "{}"))
		})
		for _, m := range c.get("messages").each() {
			want = append(want, m.follow(t).get("name").text()+" on "+subject)
		}
	}
	sameSet(t, "subjects", got, want)
}

func TestAsyncAPIRequestReply(t *testing.T) {
	d := asyncAPI(t)
	type exchange struct {
		action, role string
		asked        []string
		replied      []string
	}
	names := func(messages []string) (all []string) {
		for _, ref := range messages {
			m, err := d.resolve(t, ref)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m.follow(t).get("name").text())
		}
		return all
	}
	asked, replied := []string{schemas.ScopeType}, []string{schemas.IntentsType, "nothing", "refusal"}
	got, want := map[string]exchange{}, map[string]exchange{
		"dispatcherSendsQuestion":  {"send", "dispatcher", asked, replied},
		"functionReceivesQuestion": {"receive", "function", asked, replied},
	}
	for _, o := range d.get("operations").each() {
		if o.get("channel").get("$ref").text() != "#/channels/"+questions {
			if o.get("reply").at != nil {
				t.Errorf("%s has a reply, but its channel has no message", o.name)
			}
			continue
		}
		sameSet(t, "channel of the reply to "+o.name, o.get("reply").get("channel").references(), []string{"#/channels/" + replies})
		got[o.name] = exchange{
			o.get("action").text(), o.get("tags").each()[0].get("name").text(), names(o.get("messages").references()),
			names(o.get("reply").get("messages").references()),
		}
	}
	same(t, "questions", got, want)
	if address := d.get("channels").get(replies).object()["address"]; address != nil {
		t.Errorf("replies have the address %v, want null: each question names its own", address)
	}
}
