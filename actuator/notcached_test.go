package actuator

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
)

// lateView is a view that lists its pods only from a time on.
type lateView struct {
	given
	from time.Time
}

func (v lateView) Pod(uid types.UID) (cluster.Pod, bool) {
	if time.Now().Before(v.from) {
		return cluster.Pod{}, false
	}
	return v.given.Pod(uid)
}

// After a restore of etcd, the cache can lack a live pod, which an earlier move evicted. Its limits cannot be checked yet.
func TestLivePodNotInCache(t *testing.T) {
	client := wire(func(r *http.Request) (*http.Response, error) {
		switch name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; {
		case r.Method == http.MethodPost:
			return created(), nil
		case name == "pod-2":
			return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
		default:
			return response(http.StatusOK, ownedPod(name, types.UID(strings.TrimPrefix(name, "pod-")), "api")), nil
		}
	}).client(t)
	synctest.Test(t, func(t *testing.T) {
		p, m, start := enabledPolicy(), newMemory(), time.Now()
		p.Limits.InFlight.PerWorkload = new(uint(1))
		answer, e := answerTo("A", 1, "1", "2")
		for _, intent := range answer.Intents {
			r := record{
				Intent: intentOf(answer, intent, e), Method: schemas.MethodEviction, Begun: start, Moved: start, Settled: true,
			}
			m.ledger[r.key()], _ = json.Marshal(r)
		}
		a := New(Config{
			Client: client, Bus: m, Ledger: m, Source: "/test/actuator", Policy: p, View: lateView{webPods("1", "3"), start.Add(10 * time.Second)},
		})
		end := leads(t, a, func(ctx context.Context, i Intent, save saveFunc) (schemas.Verdict, error) {
			return a.execute(ctx, i, save)
		})
		b := &bench{Actuator: a, bus: m, start: start}
		b.put("A", 2, "1", "2", "3")
		time.Sleep(9 * time.Second)
		expect.Equal(t, "verdicts without the pods", m.heard(t, start), []heard{{"A-2.2", schemas.ReasonPodGone, 0}})
		time.Sleep(3 * time.Second)
		expect.Equal(t, "verdicts with the pods", m.heard(t, start)[1:], []heard{{"A-2.1", schemas.ReasonEvictionAccepted, 10 * time.Second}})
		end()
	})
}
