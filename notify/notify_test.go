package notify

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func event(t *testing.T, seconds int, correlation string, p schemas.Payload) schemas.Event {
	t.Helper()
	e := schematest.Event(t, "/clusters/prod/actuator", p, at(seconds), schemas.Event{})
	e.CorrelationID = correlation
	return e
}

func verdict(pod, node string, o schemas.Outcome, r schemas.ReasonCode) schemas.Verdict {
	return schemas.Verdict{
		Outcome: o, Reason: r, Message: "because", Profile: "default", Strategy: "PodLifeTime",
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: pod, UID: types.UID("uid-" + pod)}, Node: node, Reason: "it is old"},
	}
}

func TestDigest(t *testing.T) {
	d := NewDigest(10*time.Second, time.Minute)
	for i := range 5 {
		d.Add(event(t, i, "chain", verdict(fmt.Sprint("api-", i), "n1", schemas.Evicted, schemas.ReasonEvictionAccepted)), at(i))
	}
	d.Add(event(t, 5, "chain", verdict("db-0", "n1", schemas.Deferred, schemas.ReasonDisruptionBudget)), at(5))
	d.Add(event(t, 6, "chain", verdict("api-0", "n1", schemas.Settled, schemas.ReasonReplaced)), at(6))
	d.Add(event(t, 7, "other", verdict("web-0", "n2", schemas.Withdrawn, "")), at(7))
	if got := d.Due(at(14), false); len(got) != 0 || !d.Next().Equal(at(15)) {
		t.Errorf("too early: got %+v, next %v", got, d.Next())
	}
	want := []Notification{{
		Kind: Moves, Cluster: "prod", Began: at(0), Ended: at(5), Title: "prod: 5 pods moved, 1 pod deferred on node n1",
		Lines: []string{
			"shop/db-0: deferred: DisruptionBudget: because",
			"shop/api-0, shop/api-1, shop/api-2 and 2 more: evicted from n1 by PodLifeTime: it is old",
		},
		Moved: 5, Deferred: 1, Nodes: []string{"n1"}, Namespaces: []string{"shop"}, Strategies: []string{"PodLifeTime"}, Correlation: "chain",
	}}
	if got := d.Due(at(15), false); !reflect.DeepEqual(got, want) || !d.Next().IsZero() {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	d.Add(event(t, 60, "retry", verdict("db-0", "n1", schemas.Deferred, schemas.ReasonDisruptionBudget)), at(60))
	if got := d.Due(at(999), true); len(got) != 0 {
		t.Errorf("a repeated deferral: got %+v", got)
	}
}

// TestDigestProblems repeats a verdict after ten minutes, and after an hour.
func TestDigestProblems(t *testing.T) {
	for _, c := range []struct {
		outcome schemas.Outcome
		reason  schemas.ReasonCode
		want    Notification // the title and the numbers
		at      []int        // when it is sent
	}{
		{schemas.Rejected, schemas.ReasonProtected, Notification{Title: "prod: 1 pod refused on node n1", Refused: 1}, []int{0, 3600}},
		{schemas.Failed, schemas.ReasonForbidden, Notification{Title: "prod: 1 pod failed on node n1", Failed: 1}, []int{0, 3600}},
		{ // which ends another move each time
			schemas.Settled, schemas.ReasonTakenBack, Notification{Title: "prod: 1 pod settled with a problem on node n1", Problems: 1},
			[]int{0, 600, 3600},
		},
	} {
		t.Run(string(c.outcome), func(t *testing.T) {
			d := NewDigest(10*time.Second, time.Minute)
			var got, want []Notification
			for _, second := range []int{0, 600, 3600} {
				d.Add(event(t, second, "chain", verdict("db-0", "n1", c.outcome, c.reason)), at(second))
				got = append(got, d.Due(at(second+10), false)...)
			}
			for _, second := range c.at {
				n := c.want
				n.Kind, n.Cluster, n.Correlation, n.Began, n.Ended = Moves, "prod", "chain", at(second), at(second)
				n.Lines = []string{fmt.Sprintf("shop/db-0: %s: %s: because", c.outcome, c.reason)}
				n.Nodes, n.Namespaces, n.Strategies = []string{"n1"}, []string{"shop"}, []string{"PodLifeTime"}
				want = append(want, n)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestDigestMaxWait(t *testing.T) {
	d := NewDigest(10*time.Second, 25*time.Second)
	for i := 0; i < 24; i += 8 {
		d.Add(event(t, i, "chain", verdict(fmt.Sprint("api-", i), "n1", schemas.Evicted, schemas.ReasonEvictionAccepted)), at(i))
	}
	if next := d.Next(); !next.Equal(at(25)) {
		t.Errorf("due at %v, want %v", next, at(25))
	}
}

func TestStormMessage(t *testing.T) {
	d := NewDigest(10*time.Second, time.Minute)
	titles := map[int]string{}
	for i := range 3 * 3600 {
		if i < 3600 || i > 2*3600 { // two storms
			d.Add(event(t, i, fmt.Sprint(i), verdict("api", "n1", schemas.Deferred, schemas.ReasonStormNodes)), at(i))
		}
		for _, n := range d.Due(at(i), false) {
			titles[i] = fmt.Sprint(n.Title, " ", n.Lines)
		}
	}
	const text = "prod: Rehome moves nothing: the cluster circuit breaker is open [StormNodes: because]"
	if want := map[int]string{60: text, 7261: text}; !reflect.DeepEqual(titles, want) {
		t.Errorf("got %v, want %v", titles, want)
	}
}

func TestDrainMessage(t *testing.T) {
	d := NewDigest(10*time.Second, time.Minute)
	m := schemas.Maintenance{Name: "kernel", UID: "u", Stage: v1alpha1.Drain, Accepted: true, Summary: v1alpha1.Summary{Nodes: "1/2"}}
	drained := metav1.NewTime(at(300))
	pods := &v1alpha1.PodCounts{Moved: 12}
	for i, n := range []v1alpha1.NodeStatus{
		{Name: "n1", Stage: v1alpha1.Draining},
		{Name: "n1", Stage: v1alpha1.IsDrained, DrainedAt: &drained, Pods: pods},
		{Name: "n1", Stage: v1alpha1.IsDrained, DrainedAt: &drained, Pods: pods},
	} {
		m.Nodes = []v1alpha1.NodeStatus{n}
		d.Add(event(t, 300+i, "c", m), at(300+i))
		v := verdict(fmt.Sprint("api-", i), "n1", schemas.Evicted, schemas.ReasonEvictionAccepted)
		v.Strategy = schemas.MaintenanceStrategy
		d.Add(event(t, 300+i, "c", v), at(300+i))
	}
	want := []Notification{{
		Kind: Drain, Cluster: "prod", Began: at(301), Ended: at(301), Title: "prod: Maintenance kernel: 1/2 nodes are done",
		Lines: []string{"node n1 is drained: 12 pods moved"}, Moved: 12, Nodes: []string{"n1"}, Maintenance: "kernel", Namespaces: nil,
	}}
	got := d.Due(at(311), false)
	for i := range got { // empty lists and none are the same
		got[i].Namespaces, got[i].Strategies = nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	m.Nodes = nil
	m.Refusal = &schemas.Refusal{Reason: "AllNodes", Message: "it selects every node"}
	for i := range 3 {
		d.Add(event(t, 400+i, "c", m), at(400+i))
	}
	if got := d.Due(at(500), false); len(got) != 1 || got[0].Title != "prod: Maintenance kernel: refused" {
		t.Errorf("got %+v", got)
	}
}

func TestTemplates(t *testing.T) {
	hostile := Notification{
		Kind: Moves, Title: `<!channel> "1" & [a](http://b)`, Lines: []string{"shop/a: \u0001\\", "*b*"}, More: 3, Began: start, Ended: start,
	}
	for service, want := range map[string]string{
		"slack": `{"blocks":[{"text":{"text":"<!channel> \"1\" & [a](http://b)","type":"plain_text"},"type":"header"},` +
			`{"text":{"text":"shop/a: \u0001\\\n*b*\n3 more lines","type":"plain_text"},"type":"section"}],` +
			`"text":"&lt;!channel&gt; \"1\" &amp; [a](http://b)"}`,
		"webhook": `{"began":"2026-03-01T12:00:00Z","deferred":0,"ended":"2026-03-01T12:00:00Z","failed":0,"kind":"moves",` +
			`"lines":["shop/a: \u0001\\","*b*"],"more":3,"moved":0,"problems":0,"refused":0,"title":"<!channel> \"1\" & [a](http://b)"}`,
	} {
		tmpl, err := NewTemplate(service, "")
		expect.Must(t, err)
		body, err := tmpl.Render(hostile)
		expect.Must(t, err)
		if !sameJSON(t, string(body), want) {
			t.Errorf("%s:\ngot  %s\nwant %s", service, body, want)
		}
	}
	tmpl, err := NewTemplate("teams", "")
	expect.Must(t, err)
	if body, err := tmpl.Render(hostile); err != nil || !json.Valid(body) {
		t.Errorf("teams: %s, error %v", body, err)
	}
	file := filepath.Join(t.TempDir(), "template")
	for text, want := range map[string]string{
		`{"text": {{json .Text}}}`: "",
		`{"text": {{.Title}}}`:     `template: want JSON; write each value with the function json, such as {"text": {{json .Title}}}`,
	} {
		filetest.Write(t, file, text)
		if _, err := NewTemplate("webhook", file); err != nil && err.Error() != want || err == nil && want != "" {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
