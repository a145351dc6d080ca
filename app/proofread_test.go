package app

import (
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestFlawOf(t *testing.T) {
	p := &process{settings: settings.Settings{Cluster: "test"}}
	delta := schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "n1"}}
	verdict := schemas.Verdict{
		Outcome: schemas.Evicted, Strategy: "Taints", Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "api-0"}},
	}
	receipt := schemas.Receipt{Sender: "admin", Name: "one", State: schemas.RequestRejected}
	unknown := verdict
	unknown.Outcome = "moved"
	on := func(channel string) func(*schemas.Event) { return func(e *schemas.Event) { e.Channel = channel } }
	for _, c := range []struct {
		name    string
		payload schemas.Payload
		source  string
		change  func(*schemas.Event)
		want    string // after the ID of the event
	}{
		{"a delta of the watcher is right", delta, "watcher", nil, ""},
		{"a verdict of the actuator is right", verdict, "actuator", nil, ""},
		{"a receipt of the watcher is right", receipt, "watcher", nil, ""},
		{"a receipt of maintenance is right", receipt, "maintenance", nil, ""},
		{"a maintenance of its role is right", schemas.Maintenance{Name: "node/n1"}, "maintenance", nil, ""},
		{
			"a verdict of another role is invalid", verdict, "watcher", nil,
			`: invalid event: its source is "/clusters/test/watcher", want "/clusters/test/actuator"`,
		},
		{
			"a receipt of another role is invalid", receipt, "actuator", nil,
			`: invalid event: its source is "/clusters/test/actuator", want "/clusters/test/watcher"`,
		},
		{
			"a maintenance of another role is invalid", schemas.Maintenance{Name: "kernel"}, "watcher", nil,
			`: invalid event: its source is "/clusters/test/watcher", want "/clusters/test/maintenance"`,
		},
		{
			"a maintenance on the channel of another one is wrong", schemas.Maintenance{Name: "kernel"}, "maintenance",
			on("rehome.maintenance.disks"),
			`: invalid event: the subject is rehome.maintenance.disks, but its data belongs on rehome.maintenance.kernel`,
		},
		{
			"unknown outcome", unknown, "actuator", nil,
			`: invalid event: outcome: want one of ` +
				`[evicted restarted requested deferred rejected withdrawn expired failed settled], got "moved"`,
		},
		{
			"a delta about another object than its channel is wrong", delta, "watcher", on("rehome.delta.node.taints.n2"),
			`: invalid event: the subject is rehome.delta.node.taints.n2, but its data belongs on rehome.delta.node.taints.n1`,
		},
		{
			"a verdict on the channel of a delta is wrong", verdict, "actuator", on("rehome.delta.node.taints.n1"),
			`: invalid event: the subject is rehome.delta.node.taints.n1, but its data belongs on rehome.verdict.evicted.Taints.web.api-0`,
		},
		{
			"data of another shape is wrong", delta, "watcher", func(e *schemas.Event) { e.Data = []byte("[7]") },
			` of type dev.rehome.delta.v1: invalid event: json: cannot unmarshal array into Go value of type schemas.Delta`,
		},
		{
			"another type is wrong", delta, "watcher", func(e *schemas.Event) { e.Type = schemas.ScopeType },
			` of type dev.rehome.scope.v1: kind is "node.taints", which is not known: invalid event`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := schematest.Event(t, "/clusters/test/"+c.source, c.payload, time.Unix(1_800_000_000, 0), schemas.Event{})
			if c.change != nil {
				c.change(&e)
			}
			got, want := "", ""
			if err := p.flawOf(e); err != nil {
				got = err.Error()
			}
			if c.want != "" {
				want = "event " + e.ID + c.want
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestExamplesHaveNoFlaw(t *testing.T) {
	p := &process{settings: settings.Settings{Cluster: "prod"}}
	for _, e := range schematest.Examples(t) {
		if err := p.flawOf(e.Event); slices.Contains(filter.History(), schemas.NounOf(e.Event.Type)) && err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}
