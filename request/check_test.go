package request

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// Requests for tests.
var (
	newRequest = schematest.Request
	withTarget = schematest.Targets
)

func TestRead(t *testing.T) {
	stored := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	body := func(r schemas.Request) string { return string(expect.ToJSON(t, r)) }
	bare := func(a schemas.RequestAction, change ...func(*schemas.Request)) schemas.Request {
		r := newRequest(func(r *schemas.Request) { r.Action, r.Target = a, nil })
		for _, c := range change {
			c(&r)
		}
		return r
	}
	for _, c := range []struct{ name, typ, body, want string }{
		{"nothing is", "", body(newRequest()), ""},
		{"all fields", "", body(newRequest(func(r *schemas.Request) {
			r.Requester, r.Method, r.DryRun, r.Profile = "Robin", schemas.UseEvict, true, "p"
			r.Override, r.Deadline = []string{policy.DaemonSetPods}, stored.Add(24*time.Hour)
		})), ""},
		{"evaluation of all strategies", "", body(bare(schemas.ActionEvaluate)), ""},
		{"another type", schemas.DeltaType, body(newRequest()), "want a CloudEvent of type dev.rehome.request.v1"},
		{"not JSON", "", "moin", "invalid character 'm' looking for beginning of value"},
		{"unknown field", "", `{"sender":"admin","name":"one","dry_run":true}`, `json: unknown field "dry_run"`},
		{
			"name of another sender", "", body(newRequest(func(r *schemas.Request) { r.Sender = "root" })),
			`name "one" and sender "root" do not match the subject, which has "one" and "admin"`,
		},
		{"no reason", "", body(newRequest(func(r *schemas.Request) { r.Reason = " " })), "reason: want a few words, got none"},
		{
			"a long reason", "", body(newRequest(func(r *schemas.Request) { r.Reason = strings.Repeat("ü", 501) })),
			"reason: want at most 500 characters, got 501",
		},
		{
			"a long requester", "", body(newRequest(func(r *schemas.Request) { r.Requester = strings.Repeat("x", 201) })),
			"requester: want at most 200 characters, got 201",
		},
		{
			"another method", "", body(newRequest(func(r *schemas.Request) { r.Method = "ask" })),
			`method: want one of [auto evict restart], got "ask"`,
		},
		{
			"too many rules", "", body(newRequest(func(r *schemas.Request) { r.Override = make([]string, 51) })),
			"override: want at most 50 rules, got 51",
		},
		{
			"another action", "", body(newRequest(func(r *schemas.Request) { r.Action = "drain" })),
			`action: want one of [deschedule evaluate cancel maintain], got "drain"`,
		},
		{"no target", "", body(bare(schemas.ActionDeschedule)), "target: want one with action deschedule, got none"},
		{
			"a target of an evaluation", "", body(newRequest(func(r *schemas.Request) { r.Action = schemas.ActionEvaluate })),
			"target: only allowed with action deschedule",
		},
		{
			"a dry run of an evaluation", "", body(bare(schemas.ActionEvaluate, func(r *schemas.Request) { r.DryRun = true })),
			"dryRun, override, method: only allowed with action deschedule",
		},
		{
			"a strategy of a move", "", body(newRequest(func(r *schemas.Request) { r.Strategy = "S" })),
			"strategy: only allowed with action evaluate",
		},
		{"nothing to cancel", "", body(bare(schemas.ActionCancel)), `request: want the name of the request to cancel, got ""`},
		{
			"name to cancel in a move", "", body(newRequest(func(r *schemas.Request) { r.Request = "two" })),
			"request: only allowed with action cancel",
		},
		{
			"two targets", "", body(newRequest(withTarget(schemas.Target{Node: "n", Selector: &schemas.SelectorTarget{Labels: "a=b"}}))),
			"target: want one of pods, workload, selector, and node, got 2 of them",
		},
		{"an empty target", "", body(newRequest(withTarget(schemas.Target{}))), "target: want one of pods, workload, selector, and node, got 0 of them"},
		{
			"too many pods", "", body(newRequest(withTarget(schemas.Target{Pods: make([]schemas.PodTarget, 1001)}))),
			"target.pods: want at most 1000, got 1001",
		},
		{
			"a pod without a namespace", "", body(newRequest(withTarget(schemas.Target{Pods: []schemas.PodTarget{{Name: "a"}}}))),
			"target.pods[0]: want a namespace and a name",
		},
		{
			"a workload without a kind", "", body(newRequest(withTarget(schemas.Target{Workload: &schemas.WorkloadTarget{Namespace: "a", Name: "b"}}))),
			"target.workload: want a kind, a namespace and a name",
		},
		{
			"malformed labels", "", body(newRequest(withTarget(schemas.Target{Selector: &schemas.SelectorTarget{Labels: "a in"}}))),
			`target.selector.labels: want a label selector such as app=cart, got "a in"`,
		},
		{
			"empty labels", "", body(newRequest(withTarget(schemas.Target{Selector: &schemas.SelectorTarget{Labels: ""}}))),
			`target.selector.labels: want a label selector such as app=cart, got ""`,
		},
		{
			"past deadline", "", body(newRequest(func(r *schemas.Request) { r.Deadline = stored })),
			"deadline: want a time within 24h0m0s, got 2026-01-02T03:04:05Z",
		},
		{
			"deadline too late", "", body(newRequest(func(r *schemas.Request) { r.Deadline = stored.Add(25 * time.Hour) })),
			"deadline: want a time within 24h0m0s, got 2026-01-03T04:04:05Z",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.typ == "" {
				c.typ = schemas.RequestType
			}
			_, got := Read(schemas.Event{Type: c.typ, Data: json.RawMessage(c.body)}, "admin", "one", stored, schemas.Receipt{})
			var want *End
			if c.want != "" {
				want = &End{Reason: schemas.ReceiptMalformed, Message: c.want}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestSenderOf(t *testing.T) {
	for channel, want := range map[string][3]any{
		"rehome.request.admin.one":     {"admin", "one", true},
		"rehome.request.admin":         {"admin", "", false},
		"rehome.request":               {"", "", false},
		"rehome.request.admin.one.two": {"admin", "one.two", false},
		"rehome.request.Admin.one":     {"Admin", "one", false},
		"rehome.request.admin.=2A":     {"admin", "=2A", false},
	} {
		sender, name, ok := SenderOf(channel)
		if got := [3]any{sender, name, ok}; got != want {
			t.Errorf("%s: got %v, want %v", channel, got, want)
		}
	}
}

func TestTooManyOpen(t *testing.T) {
	for name, c := range map[string]struct {
		sender    policy.Sender
		open, own int
		want      *End
	}{
		"a free place":            {policy.Sender{Name: "ops", Open: 8}, 7, 7, nil},
		"no free place":           {policy.Sender{Name: "ops", Open: 8}, 8, 0, NewEnd(schemas.ReceiptTooManyRequests, "8 requests of this sender are open")},
		"a user over HTTP":        {policy.Sender{Name: policy.HTTPSender, Open: 8}, 7, 3, nil},
		"its last place":          {policy.Sender{Name: policy.HTTPSender, Open: 8}, 4, 4, NewEnd(schemas.ReceiptTooManyRequests, "4 requests of this user are open")},
		"one place for each user": {policy.Sender{Name: policy.HTTPSender, Open: 2}, 1, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TooManyOpen(c.sender, c.open, c.own); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
