package watcher

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
	// requestLasts is how long a request without a deadline is worked on, and requestLongest how long any.
	requestLasts   = time.Hour
	requestLongest = 24 * time.Hour
	// longestWord is how long a sender or a name can be.
	longestWord = 63
)

// objection is why a request is rejected.
type objection struct {
	reason  schemas.ReceiptReason
	message string
}

func refuse(reason schemas.ReceiptReason, format string, values ...any) *objection {
	return &objection{reason, fmt.Sprintf(format, values...)}
}

func malformed(format string, values ...any) *objection {
	return refuse(schemas.ReceiptMalformed, format, values...)
}

// senderOf reads the NATS subject of a request. ok is false for one that no request can have; then sender and name are what
// stands in their places, and no longer than they may be.
func senderOf(channel string) (sender, name string, ok bool) {
	words := strings.SplitN(channel, ".", 4)
	words = append(words, make([]string, 4-len(words))...)
	sender, name = words[2], words[3]
	if schemas.IsRequestWord(sender) && schemas.IsRequestWord(name) {
		return sender, name, true
	}
	return sender[:min(len(sender), longestWord)], name[:min(len(name), longestWord)], false
}

// readRequest reads a request and says what is wrong with it, whoever sent it. A field that is not known is wrong: it may be
// one that was to keep something from being done.
func readRequest(e schemas.Event, sender, name string, stored time.Time) (schemas.Request, *objection) {
	var r schemas.Request
	if e.Type != schemas.RequestType {
		return r, malformed("it is no CloudEvent of type %s", schemas.RequestType)
	}
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return schemas.Request{}, malformed("%v", err)
	}
	if r.Sender != sender || r.Name != name {
		return r, malformed("it says that it is %q of %q, and was published as %q of %q", r.Name, r.Sender, name, sender)
	}
	for _, check := range []func(schemas.Request) *objection{checkWords, checkAction, checkTarget, checkMaintenance} {
		if no := check(r); no != nil {
			return r, no
		}
	}
	if !r.Deadline.IsZero() && (!r.Deadline.After(stored) || r.Deadline.After(stored.Add(requestLongest))) {
		return r, malformed("deadline: want one in the next %v, got %s", requestLongest, r.Deadline.UTC().Format(time.RFC3339))
	}
	return r, nil
}

// deadlineOf is when what is left of a request is given up.
func deadlineOf(r schemas.Request, stored time.Time) time.Time {
	switch {
	case r.Deadline.IsZero() && r.Action == schemas.ActionMaintain: // it is done without being asked for again and again
		return stored.Add(requestLongest).UTC()
	case r.Deadline.IsZero():
		return stored.Add(requestLasts).UTC()
	}
	return r.Deadline.UTC()
}

func checkWords(r schemas.Request) *objection {
	switch n := utf8.RuneCountInString(r.Reason); {
	case strings.TrimSpace(r.Reason) == "":
		return malformed("reason: want a few words, got none")
	case n > schemas.MaxRequestReason:
		return malformed("reason: want at most %d characters, got %d", schemas.MaxRequestReason, n)
	}
	if n := utf8.RuneCountInString(r.Requester); n > schemas.MaxRequester {
		return malformed("requester: want at most %d characters, got %d", schemas.MaxRequester, n)
	}
	if r.Method != "" && !slices.Contains(schemas.RequestMethods(), r.Method) {
		return malformed("method: want one of %v, got %q", schemas.RequestMethods(), r.Method)
	}
	if n := len(r.Override); n > schemas.MaxOverride {
		return malformed("override: want at most %d rules, got %d", schemas.MaxOverride, n)
	}
	return nil
}

// checkAction looks for fields that are missing for the action, or that go with another.
func checkAction(r schemas.Request) *objection {
	moves := r.Action == schemas.ActionDeschedule
	switch {
	case !slices.Contains(schemas.RequestActions(), r.Action):
		return malformed("action: want one of %v, got %q", schemas.RequestActions(), r.Action)
	case moves && r.Target == nil:
		return malformed("target: want the pods that are meant, got none")
	case !moves && r.Target != nil:
		return malformed("target: it goes with %s alone", schemas.ActionDeschedule)
	case !moves && saysHow(r):
		return malformed("dryRun, override, method: they go with %s alone", schemas.ActionDeschedule)
	case r.Action != schemas.ActionEvaluate && r.Strategy != "":
		return malformed("strategy: it goes with %s alone", schemas.ActionEvaluate)
	case r.Action == schemas.ActionCancel && !schemas.IsRequestWord(r.Request):
		return malformed("request: want the name of the request to cancel, got %q", r.Request)
	case r.Action != schemas.ActionCancel && r.Request != "":
		return malformed("request: it goes with %s alone", schemas.ActionCancel)
	}
	return nil
}

// saysHow says whether the request says how pods are to be moved.
func saysHow(r schemas.Request) bool { return r.DryRun || len(r.Override) > 0 || r.Method != "" }

func checkTarget(r schemas.Request) *objection {
	t := r.Target
	if t == nil {
		return nil
	}
	if n := kindsOf(t); n != 1 {
		return malformed("target: want one of pods, workload, selector and node, got %d of them", n)
	}
	if len(t.Pods) > schemas.MaxRequestPods {
		return malformed("target.pods: want at most %d, got %d", schemas.MaxRequestPods, len(t.Pods))
	}
	for i, p := range t.Pods {
		if p.Namespace == "" || p.Name == "" {
			return malformed("target.pods[%d]: want a namespace and a name", i)
		}
	}
	if w := t.Workload; w != nil && (w.Kind == "" || w.Namespace == "" || w.Name == "") {
		return malformed("target.workload: want a kind, a namespace and a name")
	}
	if s := t.Selector; s != nil {
		if selector, err := labels.Parse(s.Labels); err != nil || selector.Empty() {
			return malformed("target.selector.labels: want a label selector such as app=cart, got %q", s.Labels)
		}
	}
	return nil
}

// kindsOf counts the ways in which a target says which pods are meant.
func kindsOf(t *schemas.Target) (n int) {
	for _, is := range []bool{len(t.Pods) > 0, t.Workload != nil, t.Selector != nil, t.Node != ""} {
		if is {
			n++
		}
	}
	return n
}

// mayAsk says why the policy does not let the sender ask for that. The profile is the one that holds.
func (p *plan) mayAsk(r schemas.Request) (profile string, no *objection) {
	s, known := p.requests.Sender(r.Sender)
	if !known {
		return "", refuse(schemas.ReceiptNotAllowed, "the policy has no sender %q", r.Sender)
	}
	if !s.May(r.Action) {
		return "", refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask to %s", s.Name, r.Action)
	}
	if r.Action == schemas.ActionMaintain {
		return "", allowsMaintenance(s)
	}
	if r.Action != schemas.ActionDeschedule {
		return r.Profile, nil
	}
	if no := allowsTarget(s, *r.Target); no != nil {
		return "", no
	}
	for _, rule := range r.Override {
		switch {
		case !slices.Contains(policy.Overridable(), rule):
			return "", refuse(schemas.ReceiptPolicyUnknown, "there is no rule %q that can be overridden; want one of %v", rule,
				policy.Overridable())
		case !s.MayOverride(rule):
			return "", refuse(schemas.ReceiptNotAllowed, "the policy does not let %s override %s", s.Name, rule)
		}
	}
	return p.profileOf(r.Profile)
}

// allowsTarget says why the sender may not ask for pods of the target at all.
func allowsTarget(s policy.Sender, t schemas.Target) *objection {
	var of []string
	for _, p := range t.Pods {
		of = append(of, p.Namespace)
	}
	if t.Workload != nil {
		of = append(of, t.Workload.Namespace)
	}
	if t.Selector != nil && t.Selector.Namespace != "" {
		of = append(of, t.Selector.Namespace)
	}
	for _, namespace := range of {
		if !s.MayIn(namespace) {
			return refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask for pods of namespace %s", s.Name, namespace)
		}
	}
	if t.Node != "" && !s.Nodes {
		return refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask for the pods of a node", s.Name)
	}
	return nil
}

// allowsMaintenance says why the sender may not ask for the maintenance of a node, from which all pods move that can.
func allowsMaintenance(s policy.Sender) *objection {
	switch {
	case !s.Nodes:
		return refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask for the pods of a node", s.Name)
	case len(s.Namespaces) > 0:
		return refuse(schemas.ReceiptNotAllowed,
			"the policy lets %s ask for pods of some namespaces alone, and a maintenance is about all pods of a node", s.Name)
	}
	return nil
}

// profileOf is the profile that a request names, or the first one of the policy.
func (p *plan) profileOf(name string) (string, *objection) {
	if len(p.profiles) == 0 {
		return "", refuse(schemas.ReceiptPolicyUnknown, "the policy has no profile")
	}
	if name == "" {
		return p.profiles[0].Name, nil
	}
	if !slices.ContainsFunc(p.profiles, func(x policy.Profile) bool { return x.Name == name }) {
		return "", refuse(schemas.ReceiptPolicyUnknown, "the policy has no profile %q", name)
	}
	return name, nil
}
