package request

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Receipt returns the event of a receipt for the request in e. Its ID derives from the request and the state, so the bus
// discards a second one, from another attempt or another leader.
func Receipt(source string, receipt schemas.Receipt, now time.Time, e schemas.Event) (schemas.Event, error) {
	e.Data = nil
	out, err := schemas.NewEvent(source, receipt, now, e)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("receipt for request %s: %w", e.ID, err)
	}
	sum := sha256.Sum256([]byte(e.ID + " " + e.Channel + " " + string(receipt.State)))
	out.ID = hex.EncodeToString(sum[:16])
	if out.CausationID == "" {
		out.CorrelationID = out.ID
	}
	return out, nil
}

// Action decodes only the action of a request, which decides which role answers it. That role validates the rest.
func Action(e schemas.Event) schemas.RequestAction {
	var r struct {
		Action schemas.RequestAction `json:"action"`
	}
	if e.Type != schemas.RequestType || json.Unmarshal(e.Data, &r) != nil {
		return ""
	}
	return r.Action
}

// Fingerprint returns the hash of the user and the content of a request over HTTP, where all users share a sender. It is empty
// for a request over the bus, where each sender has its own names.
func Fingerprint(r schemas.Request) (string, error) {
	if r.Sender != policy.HTTPSender {
		return "", nil
	}
	r.Deadline = time.Time{} // clients compute it from their current time
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("fingerprint of request %s: %w", r.Name, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}
