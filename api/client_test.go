package api_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// client calls the network address with the token of a user, or the loopback address without a user.
func (v *visit) client(t *testing.T, user string) *client.Client {
	t.Helper()
	config := client.Config{Server: v.operator, Notes: func(text string) { t.Log(text) }}
	if user != "" {
		config.Server, config.TokenFile = v.network, filepath.Join(t.TempDir(), "token")
		filetest.Write(t, config.TokenFile, "token-"+user+"\n")
	}
	c, err := client.New(config)
	expect.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// testClient calls each route with the client.
func (v *visit) testClient(t *testing.T) {
	t.Run("state", v.testClientState)
	t.Run("explanations", v.testClientExplanations)
	t.Run("errors", v.testClientErrors)
	t.Run("events_after_a_lost_connection", v.testClientEvents)
	t.Run("request", v.testClientRequest)
}

func (v *visit) testClientState(t *testing.T) {
	var got client.State
	if err := v.client(t, overall).State(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	want := api.Identity{Cluster: "test", Installation: "rehome", Version: got.Version}
	want.User.Name, want.User.All, want.User.Nodes = overall, true, true
	if !slices.ContainsFunc(got.Nodes, func(n client.NodeRow) bool { return n.Name == v.node }) || got.Identity != want {
		t.Errorf("got %+v and the nodes %+v, want %+v and %s", got.Identity, got.Nodes, want, v.node)
	}
}

func (v *visit) testClientExplanations(t *testing.T) {
	list, err := v.Client().CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
	expect.Must(t, err)
	c, name, ctx := v.client(t, overall), list.Items[0].Name, t.Context()
	since := time.Now().Add(-time.Hour).Truncate(time.Millisecond).UTC()
	pod, err := c.ExplainPod(ctx, types.NamespacedName{Namespace: "shop", Name: name}, since)
	if err != nil || pod.Pod.Node != v.node || pod.Pod.UID != list.Items[0].UID || !pod.Since.Equal(since) || pod.History == nil {
		t.Errorf("the pod: got %+v, error %v", pod, err)
	}
	node, err := c.ExplainNode(ctx, v.node)
	if want := (explain.NodeExplanation{Node: v.node, Pods: 2, Staying: []explain.StayingPod{}}); err != nil || !reflect.DeepEqual(node, want) {
		t.Errorf("the node: got %+v, error %v, want %+v", node, err, want)
	}
	workload, err := c.ExplainWorkload(ctx, "deployment", types.NamespacedName{Namespace: "shop", Name: "api"})
	if err != nil || len(workload.Pods) != 1 || workload.Pods[0].Name != name || workload.Workload.Kind != "Deployment" {
		t.Errorf("the workload: got %+v, error %v", workload, err)
	}
}

func (v *visit) testClientErrors(t *testing.T) {
	for _, c := range []struct {
		user string
		pod  types.NamespacedName
		want string
	}{
		{shopper, types.NamespacedName{Namespace: "web", Name: "x"}, "status 403: user shopper may not get pods in namespace web"},
		{overall, types.NamespacedName{Namespace: "shop", Name: "x/../y"},
			"status 404: pod shop/x/../y: not found: it is not in the cluster; the history has no events about it"},
		{"stranger", types.NamespacedName{Namespace: "shop", Name: "x"}, "status 401: the API server does not know the token"},
	} {
		_, err := v.client(t, c.user).ExplainPod(t.Context(), c.pod, time.Time{})
		if want := "the API at " + v.network[len("http://"):] + ": " + c.want; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", c.user, err, want)
		}
	}
}

// testClientEvents cuts the connections between two events, and follows the events of one pod.
func (v *visit) testClientEvents(t *testing.T) {
	q := client.Query{Follow: true, Since: time.Now().Add(-time.Hour)}
	q.Pods = []filter.Pod{{Namespace: "shop", Name: "cut"}}
	want := []string{v.publish(t, "shop", "cut"), v.publish(t, "shop", "cut")}
	var got []string
	for e, err := range v.client(t, shopper).Events(t.Context(), q) {
		expect.Must(t, err)
		if got = append(got, e.ID); len(got) == 2 {
			v.cut()
			v.publish(t, "web", "cut")
			want = append(want, v.publish(t, "shop", "cut"))
		}
		if len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// testClientRequest sends a request that no watcher answers.
func (v *visit) testClientRequest(t *testing.T) {
	e := schematest.Event(t, "/clusters/test/cli", schemas.Request{Name: "unanswered", Action: schemas.ActionEvaluate, Reason: "x"}, time.Now(), schemas.Event{})
	receipt, err := v.client(t, "").Send(t.Context(), e)
	if err != nil || !reflect.DeepEqual(receipt, schemas.Event{}) {
		t.Errorf("got %+v, error %v, want nothing", receipt, err)
	}
	expect.Eventually(t, "the request is open", func() bool {
		var got struct{ Request schemas.Request }
		return v.get(t, "", "/v1/requests/http/unanswered", &got) == 200 && got.Request.Name == "unanswered"
	})
	var problem *client.Problem
	if _, err := v.client(t, shopper).Send(t.Context(), e); !errors.As(err, &problem) || problem.Status != 403 {
		t.Errorf("without the right: got %v, want status 403", err)
	}
}
