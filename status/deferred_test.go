package status

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// deferral returns a verdict that defers a pod.
func deferral(pod string) schemas.Verdict {
	return schemas.Verdict{
		Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "because", Profile: "p", Strategy: "s",
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: pod, UID: types.UID(pod)}, Node: "n1"},
	}
}

func TestDeferralsKeepAtMost10000Pods(t *testing.T) {
	d, at := Deferrals{}, time.Unix(1_800_000_000, 0)
	names := func() (first string, n int, last string) {
		all := d.List()
		return all[0].Pod.Name, len(all), all[len(all)-1].Pod.Name
	}
	for i := range 10_001 {
		d.Verdict(deferral(fmt.Sprintf("pod-%05d", i)), at.Add(time.Duration(i)*time.Millisecond))
	}
	if first, n, last := names(); first != "pod-00000" || n != 10_000 || last != "pod-09999" {
		t.Errorf("got %d pods from %s to %s, want 10000 from pod-00000 to pod-09999", n, first, last)
	}
	d.Verdict(deferral("pod-00000"), at.Add(time.Hour))
	d.Verdict(deferral("new"), at.Add(time.Hour+5*time.Second))
	if first, n, last := names(); first != "pod-00000" || n != 5002 || last != "new" {
		t.Errorf("got %d pods from %s to %s, want 5002 from pod-00000 to new", n, first, last)
	}
}

func TestDeferralsShortenVerdicts(t *testing.T) {
	d, at, long := Deferrals{}, time.Unix(1_800_000_000, 0), strings.Repeat("x", 254)
	v := deferral("api-0")
	v.Message = strings.Repeat("ä", 1<<20)
	v.Blockers = make([]schemas.ObjectRef, 1000)
	for i := range v.Blockers {
		v.Blockers[i] = schemas.ObjectRef{Kind: "Pod", Name: fmt.Sprint("b-", i)}
	}
	v.Blockers[1].Name = long
	d.Verdict(v, at)
	for _, change := range []func(*schemas.Verdict){
		func(v *schemas.Verdict) { v.Profile = long }, func(v *schemas.Verdict) { v.Strategy = long },
		func(v *schemas.Verdict) { v.Reason = schemas.ReasonCode(long) }, func(v *schemas.Verdict) { v.Intent.Node = long },
		func(v *schemas.Verdict) { v.Intent.Pod.Name = long }, func(v *schemas.Verdict) { v.Intent.Pod.Namespace = long },
		func(v *schemas.Verdict) { v.Intent.Pod.UID = types.UID(long) },
	} {
		v := deferral("api-1")
		change(&v)
		d.Verdict(v, at)
	}
	want := []DeferredPod{{
		Pod: v.Intent.Pod, Node: "n1", Profile: "p", Strategy: "s", Reason: v.Reason, Since: at, Last: at, Times: 1,
		Message: strings.Repeat("ä", 510) + "…", Blockers: append(v.Blockers[:1:1], v.Blockers[2:20]...),
	}}
	if got := d.List(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
