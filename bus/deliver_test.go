package bus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestDeliverSubjects creates a consumer of each stream with each key, and with each victim as its deliver subject. The keys of
// roles and of confined participants cannot create any. A consumer of another key delivers to each victim that its own stream
// does not store, except the API of JetStream.
func TestDeliverSubjects(t *testing.T) {
	t.Parallel()
	reads := map[bus.Role][]string{ // streams with consumers of a key
		bus.RoleSetup: {bus.StreamScopes, bus.StreamEvents},
		bus.RoleAll:   {bus.StreamScopes, bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamLedger},
	}
	all := append(confined(), bus.Participant{Role: bus.RoleWatcher}, bus.Participant{Role: bus.RoleActuator}, bus.Participant{Role: bus.RoleMaintenance})
	for role := range reads {
		all = append(all, bus.Participant{Role: role})
	}
	for _, who := range all {
		t.Run(who.String(), func(t *testing.T) {
			t.Parallel()
			p, js := seeded(t)
			got, want := map[string][]string{}, map[string][]string{}
			for _, stream := range allStreams {
				if reached := p.delivers(t, js, who, stream); reached != nil {
					got[stream] = reached
				}
				if slices.Contains(reads[who.Role], stream) {
					want[stream] = slices.DeleteFunc(notStoredIn(t, js, stream), isOfJetStream)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("consumers of %s reach\n%q\nwant\n%q", who, got, want)
			}
		})
	}
}

// isOfJetStream reports whether a subject is one of JetStream itself. nats-server 2.15.3 and later deliver nothing to them.
func isOfJetStream(subject string) bool { return strings.HasPrefix(subject, "$JS.") }

// notStoredIn returns the victims that a stream does not store.
func notStoredIn(t *testing.T, js jetstream.JetStream, stream string) []string {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	expect.Must(t, err)
	return slices.DeleteFunc(victims(), func(victim string) bool {
		return slices.ContainsFunc(s.CachedInfo().Config.Subjects, func(of string) bool { return server.SubjectMatchesFilter(victim, of) })
	})
}

// delivers returns the victims that receive messages of a stream through consumers of a key. nil means that the server refuses
// all of them.
func (p port) delivers(t *testing.T, js jetstream.JetStream, who bus.Participant, stream string) (reached []string) {
	t.Helper()
	const cycle, invalid = 10081, 10112 // the codes of the errors about a cycle and about an invalid deliver subject
	refused := make(chan struct{}, 1)
	nc := p.bare(t, who.String())
	nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {
		select {
		case refused <- struct{}{}:
		default:
		}
	})
	for i, victim := range victims() {
		name := fmt.Sprint("thief-", i) // another one each time, since the server still removes the files of the one before
		config := map[string]any{"name": name, "deliver_subject": victim, "ack_policy": "explicit", "deliver_policy": "all", "max_ack_pending": 1}
		if stream == bus.StreamScopes { // each scope has one consumer, and this one none yet
			config["filter_subject"] = "rehome.scope.Unhosted.>"
			if _, err := js.Publish(t.Context(), "rehome.scope.Unhosted.default.node.a", []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		text := expect.ToJSON(t, map[string]any{"stream_name": stream, "config": config})
		heard, err := js.Conn().SubscribeSync(victim)
		expect.Must(t, err)
		answer, ok := ask(t, nc, "$JS.API.CONSUMER.CREATE."+stream+"."+name, text, refused)
		switch {
		case !ok:
		case answer.Error == nil:
			if _, err := heard.NextMsg(expect.Patience); err != nil {
				t.Errorf("a consumer of %s does not deliver to %s: %v", stream, victim, err)
			}
			reached = append(reached, victim)
		case isOfJetStream(victim) && answer.Error.ErrorCode == invalid:
		case answer.Error.ErrorCode != cycle:
			t.Errorf("a consumer of %s that delivers to %s: %v", stream, victim, answer.Error)
		}
		_ = heard.Unsubscribe()
		if err := js.DeleteConsumer(t.Context(), stream, name); (err == nil) != (ok && answer.Error == nil) {
			t.Errorf("delete the consumer of %s that delivers to %s: %v", stream, victim, err)
		}
	}
	return reached
}

// created is the reply to a request to create a consumer.
type created struct{ Error *jetstream.APIError }

// ask returns the reply to a request, or false if the server refuses to publish it.
func ask(t *testing.T, nc *nats.Conn, question string, text []byte, refused <-chan struct{}) (answer created, ok bool) {
	t.Helper()
	answered := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	go func() {
		reply, err := nc.RequestWithContext(ctx, question, text)
		if err == nil {
			err = json.Unmarshal(reply.Data, &answer)
		}
		answered <- err
	}()
	select {
	case <-refused:
		cancel()
		<-answered
		return created{}, false
	case err := <-answered:
		if err != nil {
			t.Fatalf("%s: neither answered nor refused: %v", question, err)
		}
		return answer, true
	}
}
