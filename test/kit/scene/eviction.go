package scene

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Eviction is an accepted eviction in the audit log.
type Eviction struct {
	Pod  string
	UID  types.UID
	Time time.Time
	// Received is when the request arrived. The pod was not evicted earlier.
	Received time.Time
}

// Evictions returns the evicted pods of the scene from the audit log, in order, without dry runs.
func (s *Scene) Evictions() []Eviction {
	s.T.Helper()
	return s.EvictionsWithCode(http.StatusCreated)
}

// EvictionsWithCode returns the evictions of the scene with a response code from the audit log, in order.
func (s *Scene) EvictionsWithCode(code int) []Eviction {
	s.T.Helper()
	log, err := s.Cluster.Audit(s.T.Context())
	s.T.Must(err)
	var list []Eviction
	for _, e := range log {
		if e.Namespace != s.Namespace || e.Subresource != "eviction" || e.Code != code {
			continue
		}
		request := decodeEviction(s.T, e.Object)
		if o := request.DeleteOptions; o != nil && len(o.DryRun) == 0 && o.Preconditions != nil && o.Preconditions.UID != nil {
			list = append(list, Eviction{e.Name, *o.Preconditions.UID, e.Time, e.Received})
		} else if o == nil || len(o.DryRun) == 0 {
			s.T.Errorf("pod %s was evicted without its UID as a precondition: %s", e.Name, e.Object)
		}
	}
	return list
}

func decodeEviction(t testing.TB, body json.RawMessage) policyv1.Eviction {
	t.Helper()
	var e policyv1.Eviction
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("eviction in the audit log: %v: %s", err, body)
	}
	return e
}

// UIDs returns the evicted pods.
func UIDs(list []Eviction) map[types.UID]string {
	pods := map[types.UID]string{}
	for _, e := range list {
		pods[e.UID] = e.Pod
	}
	return pods
}

// Subset reports whether all of these pods are among the others.
func Subset(pods, others map[types.UID]string) bool {
	for uid := range pods {
		if _, found := others[uid]; !found {
			return false
		}
	}
	return true
}

// WaitEvicted waits until the audit log has n evictions, not counting the first from, and returns them. A pod is gone a moment before
// the response to its eviction is in the log.
func (s *Scene) WaitEvicted(from, n int) []Eviction {
	s.T.Helper()
	var list []Eviction
	expect.EventuallyWithState(s.T, fmt.Sprintf("%d evictions are in the audit log", n), func() (bool, string) {
		list = s.Evictions()[from:]
		return len(list) >= n, fmt.Sprint(list)
	})
	return list
}

// CheckEvictedOnce checks in the audit log, when all of these pods are gone, that each was evicted exactly once, and no other pod. An
// eviction whose caller was killed before the response is in the log as a timeout, whether it succeeded or not: it did if the pod
// went without another one.
func (s *Scene) CheckEvictedOnce(pods map[types.UID]string) {
	s.T.Helper()
	expect.EventuallyWithState(s.T, fmt.Sprintf("the evictions of %d pods are in the audit log", len(pods)), func() (bool, string) {
		gone := UIDs(append(s.EvictionsWithCode(http.StatusGatewayTimeout), s.Evictions()...))
		return len(gone) >= len(pods), fmt.Sprint(len(gone))
	})
	accepted := s.Evictions()
	got := UIDs(accepted)
	if len(got) != len(accepted) {
		s.T.Errorf("%d evictions of %d pods: some were evicted twice", len(accepted), len(got))
	}
	for _, e := range s.EvictionsWithCode(http.StatusGatewayTimeout) {
		got[e.UID] = e.Pod
	}
	if !reflect.DeepEqual(got, pods) {
		s.T.Errorf("evicted %d pods, want these %d:\ngot  %v\nwant %v", len(got), len(pods), got, pods)
	}
}

// CalmTime is how long a scene continues after the last expected move. A group that a pod has left is evaluated again a second later,
// and capacity and usage every second, so an unexpected move would happen within this time.
const CalmTime = 4 * time.Second

// CheckMoved waits until n pods were evicted, not counting the first from, and then long enough to see that there are no more. It
// returns these n pods.
func (s *Scene) CheckMoved(from, n int) []Eviction {
	s.T.Helper()
	s.WaitEvicted(from, n)
	<-time.After(CalmTime)
	list := s.Evictions()[from:]
	if len(list) != n {
		s.T.Errorf("%d evictions, want %d: %v", len(list), n, UIDs(list))
	}
	return list
}

// DrainFirstNode taints the first node and waits until its n pods, all of the Deployment api, run elsewhere.
func (s *Scene) DrainFirstNode(n int) {
	s.T.Helper()
	before := s.PodsOn(s.Nodes[0])
	if len(before) != n {
		s.T.Fatalf("%d pods on %s, want %d", len(before), s.Nodes[0], n)
	}
	from := len(s.Evictions())
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	s.WaitReady("api")
	if got := s.WaitEvicted(from, n); !reflect.DeepEqual(UIDs(got), before) || len(got) != n {
		s.T.Errorf("evicted %v, want each once of %v", got, before)
	}
}
