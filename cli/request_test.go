package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/user"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// receipt returns a receipt for a request with these pods.
func receipt(r schemas.Request, state schemas.ReceiptState, reason schemas.ReceiptReason, pods ...schemas.RequestedPod) schemas.Receipt {
	return schemas.Receipt{Sender: r.Sender, Name: r.Name, State: state, Reason: reason, Message: "so it is", Action: r.Action, Pods: pods}
}

// requester is the name of the user who runs this test.
func requester(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	expect.Must(t, err)
	return u.Username
}

func requested(name string, protections ...schemas.Protection) schemas.RequestedPod {
	return schemas.RequestedPod{Pod: podOf(name), Node: "n1", Protected: protections}
}

func podOf(name string) schemas.PodRef {
	return schemas.PodRef{Namespace: "shop", Name: name, UID: types.UID("u-" + name)}
}

// judged returns a verdict on a pod of a request.
func judged(name string, outcome schemas.Outcome, reason schemas.ReasonCode) schemas.Verdict {
	return schemas.Verdict{
		Outcome: outcome, Reason: reason, Message: "because", Profile: "p", Strategy: schemas.RequestStrategy,
		Scope:  schemas.ScopeRef{Kind: schemas.RequestKind, Key: "admin/r"},
		Intent: schemas.Intent{Pod: podOf(name), Node: "n1", Reason: "asked for by admin: fan"},
	}
}

// replaced returns the end of the move of a pod.
func replaced(name string, reason schemas.ReasonCode) schemas.Verdict {
	v := judged(name, schemas.Settled, reason)
	replacement := podOf(name + "-new")
	v.Settlement = &schemas.Settlement{Replacement: &replacement, Node: "n2", Seconds: 3.2}
	return v
}

// clockTime matches the time at the beginning of a line.
var clockTime = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d\d\d  `)

func TestRequestResult(t *testing.T) {
	protected := schemas.Protection{Rule: "DaemonSetPods", Detail: "it belongs to the DaemonSet agent"}
	for _, c := range []struct {
		name      string
		arguments []string
		answer    func(r schemas.Request) []schemas.Payload
		want      string
		failed    string
	}{
		{"all pods are moved", []string{"move", "node", "n1"}, func(r schemas.Request) []schemas.Payload {
			return []schemas.Payload{
				receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a"), requested("b")),
				judged("a", schemas.Deferred, schemas.ReasonDisruptionBudget), judged("b", schemas.Evicted, schemas.ReasonEvictionAccepted),
				judged("a", schemas.Evicted, schemas.ReasonEvictionAccepted), replaced("a", schemas.ReasonReplaced),
				receipt(r, schemas.RequestFinished, schemas.ReceiptDone), replaced("b", schemas.ReasonReplaced),
			}
		}, `request admin/r: deschedule node n1: fan
receipt  admin/r                          accepted: Accepted: so it is
verdict  pod/shop/a                       deferred: DisruptionBudget: because
verdict  pod/shop/b                       evicted from n1: asked for by admin: fan
verdict  pod/shop/a                       evicted from n1: asked for by admin: fan
verdict  pod/shop/a                       settled Replaced shop/a on n2 after 3.2s: replacement a-new
receipt  admin/r                          finished: Done: so it is
verdict  pod/shop/b                       settled Replaced shop/b on n2 after 3.2s: replacement b-new

NAMESPACE   POD   WAS ON   RESULT
shop        a     n1       Replaced after 3.2s: a-new on n2
shop        b     n1       Replaced after 3.2s: b-new on n2

request admin/r finished: Done: so it is
`, ""},
		{"the last receipt comes before the verdict", []string{"move", "node", "n1"}, func(r schemas.Request) []schemas.Payload {
			return []schemas.Payload{
				receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a")),
				receipt(r, schemas.RequestFinished, schemas.ReceiptDone),
				judged("a", schemas.Evicted, schemas.ReasonEvictionAccepted), replaced("a", schemas.ReasonReplaced),
			}
		}, `request admin/r: deschedule node n1: fan
receipt  admin/r                          accepted: Accepted: so it is
receipt  admin/r                          finished: Done: so it is
verdict  pod/shop/a                       evicted from n1: asked for by admin: fan
verdict  pod/shop/a                       settled Replaced shop/a on n2 after 3.2s: replacement a-new

NAMESPACE   POD   WAS ON   RESULT
shop        a     n1       Replaced after 3.2s: a-new on n2

request admin/r finished: Done: so it is
`, ""},
		{"some remain, are protected, come back, go by themselves or were never there", []string{"move", "node", "n1"}, func(r schemas.Request) []schemas.Payload {
			accepted := receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted,
				requested("a"), requested("b", protected), requested("c"), requested("d"), requested("e"))
			accepted.Missing = []schemas.PodTarget{{Namespace: "shop", Name: "z"}}
			finished := receipt(r, schemas.RequestFinished, schemas.ReceiptDeadlineExceeded)
			finished.Gone, finished.Remaining = 2, []schemas.RemainingPod{
				{Pod: podOf("a"), Node: "n1", Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "2 needed"},
				{Pod: podOf("b"), Node: "n1"}, {Pod: podOf("e"), Node: "n1"},
			}
			return []schemas.Payload{
				accepted, judged("a", schemas.Deferred, schemas.ReasonDisruptionBudget), judged("c", schemas.Evicted, schemas.ReasonEvictionAccepted),
				replaced("c", schemas.ReasonCameBack), finished,
			}
		}, `request admin/r: deschedule node n1: fan
receipt  admin/r                          accepted: Accepted: so it is
verdict  pod/shop/a                       deferred: DisruptionBudget: because
verdict  pod/shop/c                       evicted from n1: asked for by admin: fan
verdict  pod/shop/c                       settled CameBack shop/c on n2 after 3.2s: replacement c-new
receipt  admin/r                          finished: DeadlineExceeded: so it is

NAMESPACE   POD   WAS ON   RESULT
shop        a     n1       remains: deferred: DisruptionBudget: 2 needed
shop        b     n1       protected: DaemonSetPods: it belongs to the DaemonSet agent
shop        c     n1       CameBack after 3.2s: c-new on n2
shop        d     n1       gone by itself
shop        e     n1       remains: it was not tried
shop        z     <none>   does not exist, or has no node

request admin/r finished: DeadlineExceeded: so it is
`, "4 pods of request admin/r did not move as requested\nnot found: 1 pod of request admin/r"},
		{"it is rejected", []string{"move", "deployment", "api", "-n", "shop"}, func(r schemas.Request) []schemas.Payload {
			return []schemas.Payload{receipt(r, schemas.RequestRejected, schemas.ReceiptNotAllowed)}
		}, `request admin/r: deschedule Deployment shop/api: fan
receipt  admin/r                          rejected: NotAllowed: so it is
request admin/r rejected: NotAllowed: so it is
`, "request admin/r was rejected: NotAllowed: so it is"},
		{"a dry run has no ends to wait for", []string{"move", "pod", "a", "-n", "shop", "--dry-run"}, func(r schemas.Request) []schemas.Payload {
			v := judged("a", schemas.Evicted, schemas.ReasonEvictionAccepted)
			v.DryRun = true
			return []schemas.Payload{
				receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a")), v, receipt(r, schemas.RequestFinished, schemas.ReceiptDone),
			}
		}, `request admin/r: deschedule 1 pods (dry run): fan
receipt  admin/r                          accepted: Accepted: so it is
verdict  pod/shop/a                       evicted (dry run) from n1: asked for by admin: fan
receipt  admin/r                          finished: Done: so it is

NAMESPACE   POD   WAS ON   RESULT
shop        a     n1       evicted (dry run)

request admin/r finished: Done: so it is
`, ""},
		{"another user cancels it", []string{"move", "node", "n1"}, func(r schemas.Request) []schemas.Payload {
			return []schemas.Payload{receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted), receipt(r, schemas.RequestFinished, schemas.ReceiptCancelled)}
		}, `request admin/r: deschedule node n1: fan
receipt  admin/r                          accepted: Accepted: so it is
receipt  admin/r                          finished: Cancelled: so it is
request admin/r finished: Cancelled: so it is
`, "request admin/r was cancelled"},
		{"strategies are asked", []string{"evaluate", "PodLifeTime"}, func(r schemas.Request) []schemas.Payload {
			return []schemas.Payload{receipt(r, schemas.RequestFinished, schemas.ReceiptDone)}
		}, `request admin/r: evaluate PodLifeTime: fan
receipt  admin/r                          finished: Done: so it is
request admin/r finished: Done: so it is
`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := busOf(t)
			bustest.AnswerRequests(t, b, c.answer)
			got, err := execute(t, append(c.arguments, "--reason", "fan", "--name", "r")...)
			got = strings.Replace(clockTime.ReplaceAllString(got, ""), ", by "+requester(t), "", 1)
			failed := ""
			if err != nil {
				failed = err.Error()
			}
			if got != c.want || failed != c.failed {
				t.Errorf("error %v, got\n%s\nwant error %q and\n%s", err, got, c.failed, c.want)
			}
		})
	}
}

// detached runs a command that sends a request, and returns the request.
func detached(t *testing.T, arguments ...string) schemas.Request {
	t.Helper()
	out, err := execute(t, append(arguments, "--detach", "-o", "json")...)
	expect.Must(t, err)
	return expect.FromJSON[struct {
		Data schemas.Request `json:"data"`
	}](t, []byte(out)).Data
}

func TestRequestFlags(t *testing.T) {
	b := busOf(t)
	for i, c := range []struct {
		arguments string
		want      schemas.Request
	}{
		{"move pod a b -n shop --method evict --override PodsWithPVC,MinPodAge --override Signal --profile p", schemas.Request{
			Action: schemas.ActionDeschedule, Method: schemas.UseEvict, Profile: "p", Override: []string{"PodsWithPVC", "MinPodAge", "Signal"},
			Target: &schemas.Target{Pods: []schemas.PodTarget{{Namespace: "shop", Name: "a"}, {Namespace: "shop", Name: "b"}}},
		}},
		{"move statefulsets db -n shop --dry-run --sender ci", schemas.Request{
			Sender: "ci", Action: schemas.ActionDeschedule, DryRun: true,
			Target: &schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "StatefulSet", Namespace: "shop", Name: "db"}},
		}},
		{"move Rollout/api -n shop --method restart", schemas.Request{
			Action: schemas.ActionDeschedule, Method: schemas.UseRestart,
			Target: &schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Rollout", Namespace: "shop", Name: "api"}},
		}},
		{"move pods -n shop -l app=api,tier!=test --method auto", schemas.Request{
			Action: schemas.ActionDeschedule,
			Target: &schemas.Target{Selector: &schemas.SelectorTarget{Namespace: "shop", Labels: "app=api,tier!=test"}},
		}},
		{"move pods -A -l app", schemas.Request{
			Action: schemas.ActionDeschedule, Target: &schemas.Target{Selector: &schemas.SelectorTarget{Labels: "app"}},
		}},
		{"move no/worker-9", schemas.Request{Action: schemas.ActionDeschedule, Target: &schemas.Target{Node: "worker-9"}}},
		{"evaluate", schemas.Request{Action: schemas.ActionEvaluate}},
		{"evaluate PodLifeTime --profile p", schemas.Request{Action: schemas.ActionEvaluate, Strategy: "PodLifeTime", Profile: "p"}},
		{"cancel drain", schemas.Request{Action: schemas.ActionCancel, Request: "drain"}},
	} {
		t.Run(c.arguments, func(t *testing.T) {
			name := fmt.Sprintf("r-%d", i)
			arguments := strings.Fields(c.arguments)
			got := detached(t, append(arguments, "--reason", "it must", "--name", name)...)
			c.want.Name, c.want.Reason, c.want.Requester = name, "it must", requester(t)
			if c.want.Sender == "" {
				c.want.Sender = "admin"
			}
			open, err := b.OpenRequests(t.Context())
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("error %v\ngot  %+v\nwant %+v", err, got, c.want)
			}
			if stored := open[len(open)-1].Request; !reflect.DeepEqual(stored, c.want) {
				t.Errorf("on the bus:\ngot  %+v\nwant %+v", stored, c.want)
			}
		})
	}
}

func TestRequestDefaults(t *testing.T) {
	busOf(t)
	before := time.Now()
	r := detached(t, "move", "node", "n1", "--reason", "x", "--deadline", "1h")
	if late := r.Deadline.Sub(before) - time.Hour; late < 0 || late > time.Minute || !regexp.MustCompile(`^cli-[a-z0-9]{12}$`).MatchString(r.Name) {
		t.Errorf("got %+v", r)
	}
}

func TestRequestNameInUse(t *testing.T) {
	busOf(t)
	arguments := []string{"move", "node", "n1", "--reason", "fan", "--name", "r", "--detach"}
	got, err := execute(t, arguments...)
	if want := "request admin/r: deschedule node n1: fan, by " + requester(t) + "\n"; err != nil || got != want {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
	got, err = execute(t, arguments...)
	if got != "" || !errors.Is(err, bus.ErrOpen) {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestInterruptedRequestStaysOpen(t *testing.T) {
	b := busOf(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	bustest.AnswerRequests(t, b, func(r schemas.Request) []schemas.Payload {
		return []schemas.Payload{receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a"))}
	})
	root := newRoot()
	root.SetArgs([]string{"move", "node", "n1", "--reason", "fan", "--name", "r"})
	root.SetOut(cancelling{&bytes.Buffer{}, cancel})
	err := root.ExecuteContext(ctx)
	const want = "request admin/r stays open; to cancel it:\n  rehome cancel r --sender admin --reason '...'"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// cancelling is a terminal with a user who presses Ctrl-C when the receipt is shown.
type cancelling struct {
	*bytes.Buffer
	cancel func()
}

func (c cancelling) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("accepted")) {
		c.cancel()
	}
	return c.Buffer.Write(b)
}
