// Package conformance tests `rehome serve` with the client of the CloudEvents SDK for Go, over HTTP on the loopback
// interface: each understands the messages of the other.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// function serves the strategy of the published example, and returns where.
func function(t *testing.T, environment ...string) (url string) {
	t.Helper()
	address := expect.Value(t, program.FreeAddress)
	p, err := program.Start(expect.Value(t, program.Build), []string{"serve", functions.All()[0].Strategy.Name, "--address", address}, environment)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Signal(syscall.SIGTERM), p.Err()); err != nil {
			t.Errorf("it ended with %v: %s", err, p.Log)
		}
	})
	programtest.Answers(t, p, "http://"+address+"/readyz", http.StatusOK)
	return "http://" + address + "/"
}

// scope returns the published example of a scope, as the SDK reads it, with a number in the name of the node.
func scope(t *testing.T, number int) (event.Event, schemas.Event) {
	t.Helper()
	document := []byte(strings.ReplaceAll(string(schematest.ExampleOf(t, "scope").Document), "worker-7", fmt.Sprintf("worker-%d", number)))
	e, err := schematest.Parse(document)
	expect.Must(t, err)
	return expect.FromJSON[event.Event](t, document), e
}

// check compares an answer, as the SDK reads it, with the decision of the strategy for the scope.
func check(t *testing.T, got event.Event, scope schemas.Event) {
	t.Helper()
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	answer, err := functions.All()[0].Evaluate(scope)
	if err != nil {
		t.Fatal(err)
	}
	want := event.New()
	want.SetID(got.ID())     // random
	want.SetTime(got.Time()) // now
	want.SetSource("/clusters/default/functions/RemovePodsViolatingNodeTaints")
	want.SetType("dev.rehome.intents.v1")
	want.SetSubject(scope.Subject)
	want.SetDataSchema("https://rehome.dev/schemas/v1/intents.schema.json")
	want.SetExtension("correlationid", scope.CorrelationID)
	want.SetExtension("causationid", scope.ID)
	for _, name := range []string{"traceparent", "expirytime"} { // random in part, and now
		want.SetExtension(name, got.Extensions()[name])
	}
	if err := want.SetData("application/json", answer); err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, got), text(t, want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(answer.Intents) != 3 {
		t.Errorf("the strategy itself wants to move %d pods, want 3: this test compares nothing", len(answer.Intents))
	}
}

// text returns an event in structured mode, with its attributes in one order.
func text(t *testing.T, e event.Event) string {
	t.Helper()
	b := expect.ToJSON(t, e)
	fields := expect.FromJSON[map[string]json.RawMessage](t, b)
	return string(expect.ToJSON(t, fields))
}

func newClient(t *testing.T, url string) client.Client {
	t.Helper()
	c, err := client.NewHTTP(cehttp.WithTarget(url))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSDKClientGetsAnswer(t *testing.T) {
	c := newClient(t, function(t))
	for name, encoding := range map[string]func(context.Context) context.Context{
		"binary": binding.WithForceBinary, "structured": binding.WithForceStructured,
	} {
		t.Run(name, func(t *testing.T) {
			sent, scope := scope(t, 7)
			got, result := c.Request(encoding(t.Context()), sent)
			if !protocol.IsACK(result) || got == nil {
				t.Fatalf("got %v, %v", got, result)
			}
			check(t, *got, scope)
		})
	}
}

func TestSDKBatch(t *testing.T) {
	url := function(t)
	var sent []event.Event
	var scopes []schemas.Event
	for number := range 5 {
		ce, e := scope(t, 5-number)
		sent, scopes = append(sent, ce), append(scopes, e)
	}
	q, err := cehttp.NewHTTPRequestFromEvents(t.Context(), url, sent)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if !cehttp.IsHTTPBatch(response.Header) {
		t.Errorf("the SDK sees no batch in %v", response.Header)
	}
	got, err := cehttp.NewEventsFromHTTPResponse(response)
	if err != nil || len(got) != len(scopes) {
		t.Fatalf("got %d answers and %v, want %d", len(got), err, len(scopes))
	}
	for i, e := range got {
		check(t, e, scopes[i])
	}
}

func TestParallelRequestsOfSDK(t *testing.T) {
	c := newClient(t, function(t, "REHOME_SERVE_PARALLEL=300"))
	var all sync.WaitGroup
	for number := range 300 {
		all.Go(func() {
			encoding := binding.WithForceBinary
			if number%2 == 0 {
				encoding = binding.WithForceStructured
			}
			sent, scope := scope(t, number)
			got, result := c.Request(encoding(t.Context()), sent)
			if !protocol.IsACK(result) || got == nil {
				t.Errorf("request %d: got %v, %v", number, got, result)
				return
			}
			check(t, *got, scope)
		})
	}
	all.Wait()
}

func TestSDKClientSeesRefusal(t *testing.T) {
	c := newClient(t, function(t))
	sent, _ := scope(t, 7)
	sent.SetType("com.example.other")
	got, result := c.Request(t.Context(), sent)
	var status *cehttp.Result
	if got != nil || !protocol.IsNACK(result) || !protocol.ResultAs(result, &status) || status.StatusCode != http.StatusBadRequest {
		t.Fatalf("got %v, %v; want a refusal with the status 400", got, result)
	}
}
