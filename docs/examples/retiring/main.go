// Command retiring is a custom strategy, as a function over HTTP. It moves pods off nodes that will be removed, some days before
// the removal. A label of the node has the date:
//
//	kubectl label node worker-7 example.com/retiring=2026-12-01
//
// The file policy.yaml in this folder enables it. To try it:
//
//	go run ./docs/examples/retiring    # listens at 127.0.0.1:8090, or at ADDRESS
//	rehome run --policy docs/examples/retiring/policy.yaml
//
// docs/functions.md describes the requests and the responses. The function needs no rights in the cluster or on the bus. An
// approaching date is not a change of the cluster, so the resync, every half hour, finds such nodes.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

const (
	strategy = "LeaveRetiringNodes"
	// mostBytes is larger than the scope of a node with all its pods.
	mostBytes = 8 << 20
	// intentTTL is how long an answer is valid.
	intentTTL = 10 * time.Minute
)

// arguments are the arguments in the policy.
type arguments struct {
	Label string `json:"label"` // of the node; its value is a date such as 2026-12-01
	Days  int    `json:"days"`  // days before the date when pods move
}

func main() {
	server := &http.Server{
		Addr: cmp.Or(os.Getenv("ADDRESS"), "127.0.0.1:8090"), Handler: http.HandlerFunc(handle),
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	}
	slog.Info("serving", "address", server.Addr)
	if err := server.ListenAndServe(); err != nil {
		slog.Error("cannot serve", "error", err)
		os.Exit(1)
	}
}

// handle answers one scope.
func handle(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want POST with a scope", http.StatusMethodNotAllowed)
		return
	}
	if !cloudevent.IsJSON(r.Header.Get("Content-Type")) || r.Header.Get("Content-Encoding") != "" {
		http.Error(w, "want a CloudEvent in binary mode, with JSON that is not compressed", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var answer schemas.Event
	if err == nil {
		answer, err = respond(r.Header, body, time.Now())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	set := func(name, value string) { w.Header().Set(cloudevent.HeaderPrefix+name, value) }
	if err := cloudevent.WriteAttributes(answer, set); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Del(cloudevent.HeaderPrefix + "datacontenttype") // over HTTP it is the Content-Type
	w.Header().Set("Content-Type", cloudevent.JSON)
	_, _ = w.Write(answer.Data) // the client may be gone
}

// respond writes the answer to a scope in binary mode.
func respond(headers http.Header, body []byte, now time.Time) (schemas.Event, error) {
	attributes, err := cloudevent.ReadAttributes(headers)
	if err != nil {
		return schemas.Event{}, err
	}
	question, err := cloudevent.ReadBinary(attributes, body)
	if err != nil {
		return schemas.Event{}, err
	}
	scope, err := schemas.Decode[schemas.NodeScope](question)
	if err != nil {
		return schemas.Event{}, err
	}
	if scope.Strategy != strategy || scope.Kind != schemas.NodeKind {
		return schemas.Event{}, fmt.Errorf("want a scope of the kind node for %s, got %q for %q", strategy, scope.Kind, scope.Strategy)
	}
	intents, err := decide(scope)
	if err != nil {
		return schemas.Event{}, err
	}
	for i := range intents {
		intents[i].ID, intents[i].Expires = question.ID+"."+string(intents[i].Pod.UID), scope.Now.Add(intentTTL)
	}
	ref := schemas.ScopeRef{Kind: scope.Kind, Key: scope.Key, Event: question.ID, Since: scope.Since, Now: scope.Now}
	answer := schemas.Intents{Profile: scope.Profile, Strategy: scope.Strategy, Scope: ref, Intents: intents}
	return schemas.NewEvent("/examples/retiring", answer, now, question)
}

// decide returns the pods that should move. It uses only the scope, and takes the time from it too.
func decide(scope schemas.NodeScope) ([]schemas.Intent, error) {
	args := arguments{Label: "example.com/retiring", Days: 7}
	if len(scope.Args) > 0 {
		if err := json.Unmarshal(scope.Args, &args); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
	}
	intents := []schemas.Intent{} // an empty list means that no pod should move; null would be invalid
	date, given := dateOf(scope.Node.Labels[args.Label])
	if !given || scope.Now.Before(date.AddDate(0, 0, -args.Days)) {
		return intents, nil // without a date the node stays
	}
	for _, pod := range scope.Pods {
		if len(pod.Protected) == 0 {
			intents = append(intents, pod.Move("its node is taken away on "+date.Format(time.DateOnly)))
		}
	}
	return intents, nil
}

// dateOf parses the value of the label.
func dateOf(value string) (date time.Time, given bool) {
	date, err := time.Parse(time.DateOnly, value)
	return date, err == nil
}
