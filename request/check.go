// Package request validates requests and builds their receipts. Two roles answer requests: the watcher moves pods and evaluates,
// and maintenance brings nodes to a stage.
//
//	Read (check.go, node.go) ──▶ Request or End ──▶ Receipt (receipt.go) ──▶ Answers (answer.go)
package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// requestLasts is the default deadline of a request, and requestLongest the longest.
	requestLasts   = time.Hour
	requestLongest = 24 * time.Hour
	// longestWord is the greatest length of a sender or a name.
	longestWord = 63
)

// End is the reason why a request was rejected, or how it ended.
type End struct {
	Reason  schemas.ReceiptReason
	Message string
}

// NewEnd returns an end with this reason.
func NewEnd(reason schemas.ReceiptReason, format string, values ...any) *End {
	return &End{reason, fmt.Sprintf(format, values...)}
}

// Malformed returns the end of a request that violates the contract.
func Malformed(format string, values ...any) *End {
	return NewEnd(schemas.ReceiptMalformed, format, values...)
}

// TooManyOpen returns the reason why a sender with that many open requests may not open another one, or nil. All users of the
// HTTP API share a sender, so one of them may have at most half of its requests. own are the open requests of the same user.
func TooManyOpen(s policy.Sender, open, own int) *End {
	if open >= s.Open {
		return NewEnd(schemas.ReceiptTooManyRequests, "%d requests of this sender are open", s.Open)
	}
	if most := max(1, s.Open/2); s.Name == policy.HTTPSender && own >= most {
		return NewEnd(schemas.ReceiptTooManyRequests, "%d requests of this user are open", most)
	}
	return nil
}

// SenderOf parses the NATS subject of a request. For an invalid subject ok is false, and the results are the words of the
// subject, cut to 63 characters.
func SenderOf(channel string) (sender, name string, ok bool) {
	words := strings.SplitN(channel, ".", 4)
	words = append(words, make([]string, 4-len(words))...)
	sender, name = words[2], words[3]
	if schemas.IsRequestWord(sender) && schemas.IsRequestWord(name) {
		return sender, name, true
	}
	return sender[:min(len(sender), longestWord)], name[:min(len(name), longestWord)], false
}

// Read decodes and validates a request. An unknown field is an error, because it may have been meant to prevent a move. last is
// the last receipt of the name: after a finished request, the deadline may have passed, because a client can send that request
// again.
func Read(e schemas.Event, sender, name string, stored time.Time, last schemas.Receipt) (schemas.Request, *End) {
	var r schemas.Request
	if e.Type != schemas.RequestType {
		return r, Malformed("want a CloudEvent of type %s", schemas.RequestType)
	}
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return schemas.Request{}, Malformed("%v", err)
	}
	if r.Sender != sender || r.Name != name {
		return r, Malformed("name %q and sender %q do not match the subject, which has %q and %q", r.Name, r.Sender, name, sender)
	}
	for _, check := range []func(schemas.Request) *End{checkWords, checkAction, checkTarget, checkMaintenance} {
		if no := check(r); no != nil {
			return r, no
		}
	}
	inTime := r.Deadline.IsZero() || r.Deadline.After(stored) && !r.Deadline.After(stored.Add(requestLongest))
	if !inTime && last.State != schemas.RequestFinished {
		return r, Malformed("deadline: want a time within %v, got %s", requestLongest, r.Deadline.UTC().Format(time.RFC3339))
	}
	return r, nil
}

// Deadline returns when a role stops working on a request.
func Deadline(r schemas.Request, stored time.Time) time.Time {
	switch {
	case r.Deadline.IsZero() && r.Action == schemas.ActionMaintain: // takes hours, and the client waits for it
		return stored.Add(requestLongest).UTC()
	case r.Deadline.IsZero():
		return stored.Add(requestLasts).UTC()
	}
	return r.Deadline.UTC()
}

func checkWords(r schemas.Request) *End {
	switch n := utf8.RuneCountInString(r.Reason); {
	case strings.TrimSpace(r.Reason) == "":
		return Malformed("reason: want a few words, got none")
	case n > schemas.MaxRequestReason:
		return Malformed("reason: want at most %d characters, got %d", schemas.MaxRequestReason, n)
	}
	if n := utf8.RuneCountInString(r.Requester); n > schemas.MaxRequester {
		return Malformed("requester: want at most %d characters, got %d", schemas.MaxRequester, n)
	}
	if r.Method != "" && !slices.Contains(schemas.RequestMethods(), r.Method) {
		return Malformed("method: want one of %v, got %q", schemas.RequestMethods(), r.Method)
	}
	if n := len(r.Override); n > schemas.MaxOverride {
		return Malformed("override: want at most %d rules, got %d", schemas.MaxOverride, n)
	}
	return nil
}

// checkAction finds missing fields, and fields of another action.
func checkAction(r schemas.Request) *End {
	moves := r.Action == schemas.ActionDeschedule
	switch {
	case !slices.Contains(schemas.RequestActions(), r.Action):
		return Malformed("action: want one of %v, got %q", schemas.RequestActions(), r.Action)
	case moves && r.Target == nil:
		return Malformed("target: want one with action deschedule, got none")
	case !moves && r.Target != nil:
		return Malformed("target: only allowed with action %s", schemas.ActionDeschedule)
	case !moves && saysHow(r):
		return Malformed("dryRun, override, method: only allowed with action %s", schemas.ActionDeschedule)
	case r.Action != schemas.ActionEvaluate && r.Strategy != "":
		return Malformed("strategy: only allowed with action %s", schemas.ActionEvaluate)
	case r.Action == schemas.ActionCancel && !schemas.IsRequestWord(r.Request):
		return Malformed("request: want the name of the request to cancel, got %q", r.Request)
	case r.Action != schemas.ActionCancel && r.Request != "":
		return Malformed("request: only allowed with action %s", schemas.ActionCancel)
	}
	return nil
}

// saysHow reports whether the request sets a field about the method of its moves.
func saysHow(r schemas.Request) bool { return r.DryRun || len(r.Override) > 0 || r.Method != "" }

func checkTarget(r schemas.Request) *End {
	t := r.Target
	if t == nil {
		return nil
	}
	if n := kindsOf(t); n != 1 {
		return Malformed("target: want one of pods, workload, selector, and node, got %d of them", n)
	}
	if len(t.Pods) > schemas.MaxRequestPods {
		return Malformed("target.pods: want at most %d, got %d", schemas.MaxRequestPods, len(t.Pods))
	}
	for i, p := range t.Pods {
		if p.Namespace == "" || p.Name == "" {
			return Malformed("target.pods[%d]: want a namespace and a name", i)
		}
	}
	if w := t.Workload; w != nil && (w.Kind == "" || w.Namespace == "" || w.Name == "") {
		return Malformed("target.workload: want a kind, a namespace and a name")
	}
	if s := t.Selector; s != nil {
		if selector, err := labels.Parse(s.Labels); err != nil || selector.Empty() {
			return Malformed("target.selector.labels: want a label selector such as app=cart, got %q", s.Labels)
		}
	}
	return nil
}

// kindsOf returns the number of fields that select pods.
func kindsOf(t *schemas.Target) (n int) {
	for _, is := range []bool{len(t.Pods) > 0, t.Workload != nil, t.Selector != nil, t.Node != ""} {
		if is {
			n++
		}
	}
	return n
}
