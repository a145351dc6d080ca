package nats

import (
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// consumer sends the request of KEDA 2.21 for a nats-jetstream trigger, and returns what KEDA reads: the pending messages of the
// consumer and its leader.
func (f *fleet) consumer(monitor, name string) (lag int, leader string, found bool) {
	f.t.Helper()
	var answer struct {
		Accounts []struct {
			ID, Name string
			Streams  []struct {
				Name      string `json:"name"`
				Consumers []struct {
					Name          string `json:"name"`
					NumAckPending int    `json:"num_ack_pending"`
					NumPending    int    `json:"num_pending"`
					Cluster       struct {
						Leader string `json:"leader"`
					} `json:"cluster"`
				} `json:"consumer_detail"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	f.reads(monitor, "/jsz?"+url.Values{"acc": {bus.Account}, "consumers": {"true"}, "config": {"true"}}.Encode(), &answer)
	for _, account := range answer.Accounts {
		for _, stream := range account.Streams {
			for _, c := range stream.Consumers {
				if account.ID == bus.Account && stream.Name == bus.StreamScopes && c.Name == name {
					return c.NumPending + c.NumAckPending, c.Cluster.Leader, true
				}
			}
		}
	}
	return 0, "", false
}

// lags are what KEDA reads for each trigger. It asks the server that leads the consumer: from a route in /varz it makes the
// name of a server, which it takes both for the first part of its address and for its name as the leader.
func (f *fleet) lags(triggers []trigger) map[string]int {
	f.t.Helper()
	all := map[string]int{}
	for _, trigger := range triggers {
		name := trigger.Metadata["consumer"]
		for i, monitor := range f.monitor {
			if lag, leader, found := f.consumer(monitor, name); found && leader == f.names[i] {
				all[name] = lag
			}
		}
	}
	return all
}

func TestKEDAFindsServersByRoute(t *testing.T) {
	s := newStage(t)
	r := renderedServers(t, s)
	endpoint := triggers(t, s)[0].Metadata["natsServerMonitoringEndpoint"]
	host, _, _ := strings.Cut(endpoint, ":")
	for i, route := range r.routes(t) {
		u, err := url.Parse(route)
		expect.Must(t, err)
		first, _, _ := strings.Cut(u.Host, ".")
		if first != r.names[i] || first+"."+host != u.Hostname() {
			t.Errorf("route %s: KEDA would ask %s.%s, want the server %s", route, first, endpoint, r.names[i])
		}
	}
}

// TestKEDALag lets the watcher evaluate five nodes while no function runs, and then one.
func TestKEDALag(t *testing.T) {
	f := newFleet(t)
	f.addUnwantedPods("lag", f.addNodes("lag", 5))
	triggers := triggers(t, f.stage)
	want := map[string]int{}
	if got := f.lags(triggers); !maps.Equal(got, want) {
		t.Errorf("before there are consumers KEDA finds %v", got)
	}
	f.setUpBus()
	for _, trigger := range triggers {
		want[trigger.Metadata["consumer"]] = 0
	}
	is := func(what string) {
		t.Helper()
		expect.EventuallyWithState(t, what, func() (bool, string) {
			got := f.lags(triggers)
			return maps.Equal(got, want), fmt.Sprintf("%v, want %v", got, want)
		})
	}
	is("nothing waits")
	f.role("watcher", "--policy", f.policy("lag"))
	want["RemovePodsViolatingNodeTaints"] = 5
	is("five scopes wait")
	f.role("functions")
	want["RemovePodsViolatingNodeTaints"] = 0
	is("nothing waits any more")
}

// addUnwantedPods adds a pod to each node of a scene, and then a taint that the pod does not tolerate.
func (f *fleet) addUnwantedPods(scene string, nodes []string) {
	f.t.Helper()
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	c := f.stage.cluster
	must(c.AddNamespace(f.t.Context(), scene))
	_, err := c.AddDeployment(f.t.Context(), scene, scene, len(nodes), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": scene}
		d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
		}}
	})
	must(err)
	must(c.WaitReady(f.t.Context(), scene, scene))
	for _, name := range nodes {
		must(c.PatchNode(f.t.Context(), name, `{"spec":{"taints":[{"key":"dedicated","effect":"NoSchedule"}]}}`))
	}
}
