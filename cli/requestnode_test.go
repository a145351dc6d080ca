package cli

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/bustest"
)

func TestNodeRequestFlags(t *testing.T) {
	busOf(t)
	for _, c := range []struct {
		flags string
		want  schemas.NodeRequest
	}{
		{"cordon", schemas.NodeRequest{Stage: v1alpha1.Cordon}},
		{"drain --deadline 4h --on-deadline Hold --force SingleNode,AllNodes", schemas.NodeRequest{
			Stage: v1alpha1.Drain, Deadline: &metav1.Duration{Duration: 4 * time.Hour}, OnDeadline: v1alpha1.Hold,
			Force: []v1alpha1.Guard{v1alpha1.SingleNode, v1alpha1.AllNodes},
		}},
		{"uncordon", schemas.NodeRequest{Stage: v1alpha1.Complete}},
	} {
		got := detached(t, append(strings.Fields(c.flags), "worker-9", "--reason", "fan")...)
		c.want.Node = "worker-9"
		want := schemas.Request{
			Sender: "admin", Name: got.Name, Action: schemas.ActionMaintain, Reason: "fan", Requester: requester(t), Maintenance: &c.want,
			Deadline: got.Deadline,
		}
		if !reflect.DeepEqual(got, want) || got.Deadline.IsZero() == strings.Contains(c.flags, "--deadline") {
			t.Errorf("%s: got %+v, want %+v", c.flags, got, want)
		}
	}
}

func TestDrainDeadline(t *testing.T) {
	busOf(t)
	for flags, want := range map[string]time.Duration{
		"drain --deadline 4h":     4*time.Hour + time.Minute,
		"drain --deadline 23h59m": 24 * time.Hour,
		"drain --deadline 24h":    24 * time.Hour, // the longest deadline of a request
	} {
		before := time.Now()
		got := detached(t, append(strings.Fields(flags), "worker-9", "--reason", "fan")...).Deadline
		after := time.Now()
		if got.Before(before.Add(want)) || got.After(after.Add(want)) {
			t.Errorf("%s: until %v, want %v after %v", flags, got, want, before)
		}
	}
}

func TestConflictingNodeFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"uncordon n1 --force AllNodes":            "unknown flag: --force",
		"drain n1 --method evict":                 "unknown flag: --method",
		"drain n1 --on-deadline Hold":             "--on-deadline: want it with --deadline",
		"drain n1 --deadline 1h --on-deadline No": `invalid argument "No" for "--on-deadline" flag: want Continue, Hold, Release`,
		"drain n1 n2":                             "accepts 1 arg(s), received 2",
		"drain a/b":                               `want the name of a node, got "a/b"`,
	} {
		_, err := execute(t, append(strings.Fields(flags), "--reason", "fan")...)
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", flags, err, want)
		}
	}
}

// elapsed matches the seconds since the request at the beginning of a line.
var elapsed = regexp.MustCompile(`(?m)^\d+s  `)

func TestDrainProgress(t *testing.T) {
	b := busOf(t)
	bustest.AnswerRequests(t, b, func(r schemas.Request) []schemas.Payload {
		about := func(uid string, left, moved int32, blocked ...v1alpha1.BlockedPod) schemas.Maintenance {
			return schemas.Maintenance{Name: "node/n1", UID: types.UID(uid), Stage: v1alpha1.Drain, Accepted: true, Nodes: []v1alpha1.NodeStatus{{
				Name: "n1", Stage: v1alpha1.Draining, Pods: &v1alpha1.PodCounts{Left: left, Moved: moved}, Blocked: blocked,
			}}}
		}
		return []schemas.Payload{
			receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted),
			about("a", 3, 0), about("b", 1, 2, v1alpha1.BlockedPod{
				Namespace: "shop", Name: "db-0", Reason: "DisruptionBudget", By: "poddisruptionbudget/shop/db", Message: "2 of 2 are needed",
			}),
			receipt(r, schemas.RequestFinished, schemas.ReceiptDone),
		}
	})
	got, err := execute(t, "drain", "n1", "--reason", "fan", "--name", "r")
	got = strings.Replace(clockTime.ReplaceAllString(got, ""), ", by "+requester(t), "", 1)
	got = elapsed.ReplaceAllString(got, "0s  ")
	const want = `request admin/r: maintain node n1: Drain: fan
receipt  admin/r                          accepted: Accepted: so it is
0s  node n1: Draining, 3 pods left, 0 moved
0s  node n1: Draining, 1 pod left, 2 moved
  blocked: shop/db-0: DisruptionBudget: 2 of 2 are needed
receipt  admin/r                          finished: Done: so it is
request admin/r finished: Done: so it is
`
	if err != nil || got != want {
		t.Errorf("error %v, got\n%s\nwant\n%s", err, got, want)
	}
}

func TestNodeRequestResult(t *testing.T) {
	moved := judged("a", schemas.Evicted, schemas.ReasonEvictionAccepted)
	moved.Strategy, moved.Scope = schemas.MaintenanceStrategy, schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: "node/n1"}
	other := moved
	other.Scope.Key = "node/n2"
	for _, c := range []struct {
		reason schemas.ReceiptReason
		failed string
	}{
		{schemas.ReceiptDone, ""},
		{schemas.ReceiptDeadlineExceeded, "request admin/r failed: DeadlineExceeded: so it is"},
		{schemas.ReceiptRefused, "request admin/r failed: Refused: so it is"},
		{schemas.ReceiptHeldByAnother, "request admin/r failed: HeldByAnother: so it is"},
		{schemas.ReceiptCancelled, "request admin/r was cancelled"},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			b := busOf(t)
			bustest.AnswerRequests(t, b, func(r schemas.Request) []schemas.Payload {
				for _, v := range []schemas.Verdict{moved, other} { // from another source than a request: the maintenance continues without requests
					e, err := schemas.NewEvent("/test", v, time.Now(), schemas.Event{})
					if err == nil {
						_, err = b.Publish(t.Context(), e)
					}
					if err != nil {
						t.Error(err)
					}
				}
				return []schemas.Payload{
					receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted), receipt(r, schemas.RequestFinished, c.reason),
				}
			})
			got, err := execute(t, "drain", "n1", "--deadline", "4h", "--reason", "fan", "--name", "r")
			got = strings.Replace(clockTime.ReplaceAllString(got, ""), ", by "+requester(t), "", 1)
			want := `request admin/r: maintain node n1: Drain within 4h0m0s: fan
verdict  pod/shop/a                       evicted from n1: asked for by admin: fan
receipt  admin/r                          accepted: Accepted: so it is
receipt  admin/r                          finished: REASON: so it is

NAMESPACE   POD   WAS ON   RESULT
shop        a     n1       evicted: EvictionAccepted: because

request admin/r finished: REASON: so it is
`
			want = strings.ReplaceAll(want, "REASON", string(c.reason))
			failed := ""
			if err != nil {
				failed = err.Error()
			}
			if got != want || failed != c.failed {
				t.Errorf("error %v, got\n%s\nwant error %q and\n%s", err, got, c.failed, want)
			}
		})
	}
}
