package look

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/status"
)

// node is a node in a zone with so many of 100 pods.
func node(name, zone string, pods int64) client.NodeRow {
	return client.NodeRow{
		Name: name, Ready: true, Labels: map[string]string{corev1.LabelTopologyZone: zone},
		Capacity: feed.Amounts{Pods: 100}, Requested: feed.Amounts{Pods: pods},
	}
}

func TestPicture(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := client.State{Status: status.Of(actuator.Remembered{Moves: []actuator.Move{{
		Pod: schemas.PodRef{Namespace: "shop", Name: "api-0"}, Node: "n1", Method: schemas.MethodEviction, Strategy: "PodLifeTime",
		Begun: now.Add(-time.Minute), Moved: now.Add(-time.Minute), WaitsFor: "a replacement that is ready",
	}}}, nil, now), Identity: api.Identity{Cluster: "prod", Installation: "rehome", Version: "v1", DryRun: true}}
	cordoned, lost := node("n2", "a", 0), node("a-name-that-is-too-long-for-its-place-1", "", 100)
	cordoned.Cordoned, lost.Ready = true, false
	st.Nodes = []client.NodeRow{node("n1", "a", 41), cordoned, node("n3", "b", 1), lost}
	var looks []looked
	p := newPicture(func() (client.State, error) {
		next := looks[0]
		looks = looks[1:]
		return next.state, next.err
	})
	looks = []looked{{st, nil}, {client.State{}, errors.New("connection refused")}}
	view := func() string {
		m, _ := p.Update(p.lookNow())
		p = m.(picture)
		return p.View()
	}
	if got, want := p.View(), "looking for Rehome ...\nq quits"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	m, _ := p.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
	p = m.(picture)
	const want = "cluster prod, installation rehome, version v1, DRY RUN: nothing moves\n\n" +
		"no zone: 1 node\n" +
		"…g-for-its-place-1 [##########] 100 not ready\n\n" +
		"a: 2 nodes\n" +
		"n1                 [#####.....]  41           n2                 [..........]   0 cordoned\n\n" +
		"b: 1 node\n" +
		"n3                 [#.........]   1\n\n" +
		"1 move in flight, no workload circuit breaker is open, cluster circuit breaker closed\n\n" +
		"Moves in flight:\n" +
		"NAMESPACE   POD     NODE   METHOD     WORKLOAD   STRATEGY      AGE   WAITS FOR\n" +
		"shop        api-0   n1     eviction   <none>     PodLifeTime   60s   a replacement that is ready\n\n" +
		"recorded moves: 0 in the last minute, 1 in the last 5 minutes, 1 in the last hour, 0 older\n\n" +
		"Moves off nodes and namespaces:\n" +
		"PLACE            PODS   LIMIT\n" +
		"node/n1          1      none\n" +
		"namespace/shop   1      none\n" +
		"q quits"
	if got := view(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := view(), "NOT CURRENT: connection refused\ncluster prod,"; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	m, _ = p.Update(tea.WindowSizeMsg{Width: 12, Height: 3})
	p = m.(picture)
	m, _ = p.Update(tea.KeyMsg{Type: tea.KeyDown})
	p = m.(picture)
	if got, want := p.View(), "cluster pro…\n\nlines 2 to 3 of 25; arrows scroll, q quits"; got != want {
		t.Errorf("scrolled on a small terminal: got %q, want %q", got, want)
	}
	if _, quit := p.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q")}); quit == nil {
		t.Error("q does not quit")
	}
}
