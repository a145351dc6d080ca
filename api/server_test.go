//nolint:bodyclose // (*visit).do closes bodies at the end of the test
package api_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// The users may get pods of the namespace shop, all pods and nodes, and nothing.
const (
	shopper = "shopper"
	overall = "overall"
)

// TestServer shares a control plane and a bus among its parts. The last one stops the bus.
func TestServer(t *testing.T) {
	v := newVisit(t)
	t.Run("operator", v.testOperator)
	t.Run("page", v.testPage)
	t.Run("unknown_paths", v.testUnknown)
	t.Run("state", v.testState)
	t.Run("watch", v.testWatch)
	t.Run("rights_that_change_during_a_watch", v.testChangedRights)
	t.Run("streams_of_users_who_see_nothing", v.testNothingToSee)
	t.Run("events", v.testEvents)
	t.Run("resumed_events", v.testResumedEvents)
	t.Run("bad_queries", v.testBadQueries)
	t.Run("events_that_a_slow_client_misses", v.testMissedEvents)
	t.Run("slow_client_loses_its_rights", v.testSlowLoser)
	t.Run("too_many_streams", v.testTooManyStreams)
	t.Run("requests", v.testRequests)
	t.Run("explanations", v.testExplanations)
	t.Run("invented_namespaces", v.testInventedNamespaces)
	t.Run("simulate", v.testSimulate)
	t.Run("client", v.testClient)
	t.Run("lost_bus", v.testLostBus)
}

// visit is a server with its two addresses.
type visit struct {
	*cluster.Cluster
	server            *embed.Server
	bus               *bus.Bus
	operator, network string
	pipes             api.Pipes // to the network address
	cut               func()    // the connections of all clients
	reviews           *reviews
	node              string
	sent              int
}

// reviews counts SubjectAccessReviews.
type reviews struct {
	http.RoundTripper
	n atomic.Int64
}

func (r *reviews) RoundTrip(q *http.Request) (*http.Response, error) {
	if strings.HasSuffix(q.URL.Path, "/subjectaccessreviews") {
		r.n.Add(1)
	}
	return r.RoundTripper.RoundTrip(q)
}

func newVisit(t *testing.T) *visit {
	t.Helper()
	var users []cluster.User
	for _, name := range []string{shopper, overall, nobody} {
		users = append(users, cluster.User{Name: name, Token: "token-" + name})
	}
	v := &visit{Cluster: clustertest.New(t, cluster.Options{Users: users})}
	v.server = bustest.Server(t, embed.Options{})
	v.bus = bustest.Connect(t, bus.Options{Server: v.server})
	bustest.SetUp(t, v.bus, bus.Setup{})
	ctx, client := t.Context(), v.Client()
	must := func(err error) { t.Helper(); expect.Must(t, err) }
	nodes, err := v.AddNodes(ctx, 1, func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z1" })
	must(err)
	v.node = nodes[0]
	for _, namespace := range []string{"shop", "web"} {
		must(v.AddNamespace(ctx, namespace))
		_, err := v.AddDeployment(ctx, namespace, "api", 1)
		must(err)
		must(v.WaitReady(ctx, namespace, "api"))
	}
	for name, resources := range map[string][]string{"see-pods": {"pods"}, "see-all": {"pods", "nodes"}} {
		_, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"get"}}},
		}, metav1.CreateOptions{})
		must(err)
	}
	must(v.allow(ctx, "shop"))
	must(v.Bind(ctx, cluster.UserSubject(overall), "", "see-all"))
	v.reviews = &reviews{}
	s := newServer(t, v.Cluster, v.bus, func(to http.RoundTripper) http.RoundTripper {
		v.reviews.RoundTripper = to
		return v.reviews
	})
	operator, network := httptest.NewServer(s.Operator()), httptest.NewServer(s.Network())
	t.Cleanup(operator.Close)
	t.Cleanup(network.Close)
	v.pipes = make(api.Pipes)
	slow := &http.Server{Handler: s.Network()}
	expect.Background(t, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { slow.Close() })()
		if err := slow.Serve(v.pipes); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	v.operator, v.network, v.cut = operator.URL, network.URL, network.CloseClientConnections
	return v
}

// allow lets the shopper see the pods of a namespace.
func (v *visit) allow(ctx context.Context, namespace string) error {
	return v.Bind(ctx, cluster.UserSubject(shopper), namespace, "see-pods")
}

// do makes a call, at the loopback address without a user.
func (v *visit) do(t *testing.T, user, method, path, body string, header map[string]string) *http.Response {
	t.Helper()
	url := v.network
	if user == "" {
		url = v.operator
	}
	q, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	expect.Must(t, err)
	if user != "" {
		q.Header.Set("Authorization", "Bearer token-"+user)
	}
	for name, value := range header {
		q.Header.Set(name, value)
	}
	q.Host = header["Host"]
	got, err := http.DefaultClient.Do(q)
	expect.Must(t, err)
	t.Cleanup(func() { got.Body.Close() })
	return got
}

func (v *visit) get(t *testing.T, user, path string, into any) int {
	t.Helper()
	got := v.do(t, user, http.MethodGet, path, "", nil)
	text, err := io.ReadAll(got.Body)
	expect.Must(t, err)
	if into != nil && got.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return got.StatusCode
}

func (v *visit) testOperator(t *testing.T) {
	const post = http.MethodPost
	for name, c := range map[string]struct {
		method string
		header map[string]string
		status int
	}{
		"address":            {http.MethodGet, nil, 200},
		"localhost":          {http.MethodGet, map[string]string{"Host": "localhost:1"}, 200},
		"IPv6":               {http.MethodGet, map[string]string{"Host": "[::1]:8644"}, 200},
		"IPv6 alone":         {http.MethodGet, map[string]string{"Host": "[::1]"}, 200},
		"another name":       {http.MethodGet, map[string]string{"Host": "evil.example:8644"}, 403},
		"a longer name":      {http.MethodGet, map[string]string{"Host": "localhost.evil.example"}, 403},
		"own origin":         {http.MethodGet, map[string]string{"Host": "localhost:1", "Origin": "http://localhost:1"}, 200},
		"another origin":     {http.MethodGet, map[string]string{"Origin": "http://evil.example"}, 403},
		"another port":       {http.MethodGet, map[string]string{"Host": "localhost:1", "Origin": "http://localhost:2"}, 403},
		"no origin":          {http.MethodGet, map[string]string{"Origin": "null"}, 403},
		"own page":           {http.MethodGet, map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		"typed by the user":  {http.MethodGet, map[string]string{"Sec-Fetch-Site": "none"}, 200},
		"image of a site":    {http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		"another local port": {http.MethodGet, map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		"a form":             {post, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		"plain text":         {post, map[string]string{"Content-Type": "text/plain"}, 415},
		"no content type":    {post, nil, 415},
		"JSON":               {post, map[string]string{"Content-Type": "application/json"}, 405},
		"a JSON preflight":   {http.MethodOptions, map[string]string{"Origin": "http://evil.example"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			got := v.do(t, "", c.method, "/v1/state", "", c.header)
			if got.StatusCode != c.status || got.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("got %d %v, want %d", got.StatusCode, got.Header, c.status)
			}
		})
	}
}

func (v *visit) testPage(t *testing.T) {
	for _, user := range []string{"", "stranger"} {
		got := v.do(t, user, http.MethodGet, "/", "", nil)
		text, err := io.ReadAll(got.Body)
		csp := got.Header.Get("Content-Security-Policy")
		if err != nil || got.StatusCode != 200 || !strings.Contains(string(text), "Rehome") || !strings.Contains(csp, "default-src 'self'") ||
			!strings.Contains(csp, "frame-ancestors 'none'") || got.Header.Get("X-Content-Type-Options") != "nosniff" || got.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("user %q: got %d %v, %v", user, got.StatusCode, got.Header, err)
		}
	}
	var document struct {
		OpenAPI string
		Paths   map[string]any
	}
	if status := v.get(t, "", "/v1/openapi.json", &document); status != 200 || document.OpenAPI != "3.1.0" || document.Paths["/v1/watch"] == nil {
		t.Errorf("the document: got %d %s with %v", status, document.OpenAPI, slices.Sorted(maps.Keys(document.Paths)))
	}
}

func (v *visit) testUnknown(t *testing.T) {
	for path, want := range map[string]int{"/v1/nothing": 404, "/v1": 404, "/v1/": 404, "/v1/state/x": 404} {
		got := v.do(t, overall, http.MethodGet, path, "", nil)
		if got.StatusCode != want || got.Header.Get("Content-Type") != "application/problem+json" || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d %v, want %d", path, got.StatusCode, got.Header, want)
		}
	}
	if got := v.do(t, overall, http.MethodDelete, "/v1/requests", "", nil); got.StatusCode != 405 || got.Header.Get("Allow") != "GET, POST" {
		t.Errorf("another method: got %d %v, want 405", got.StatusCode, got.Header)
	}
	for user, want := range map[string]int{"stranger": 401, nobody: 200} {
		if got := v.get(t, user, "/v1/state", nil); got != want {
			t.Errorf("%s: got %d, want %d", user, got, want)
		}
	}
}

func (v *visit) testState(t *testing.T) {
	for user, want := range map[string]struct {
		api.User
		nodes   []string
		zone    string
		leaders bool
	}{
		"":      {api.User{Name: "operator", All: true, Nodes: true}, []string{v.node}, "z1", true},
		overall: {api.User{Name: overall, All: true, Nodes: true}, []string{v.node}, "z1", true},
		shopper: {api.User{Name: shopper}, []string{v.node}, "", false},
		nobody:  {api.User{Name: nobody}, nil, "", false},
	} {
		var got api.State
		status := v.get(t, user, "/v1/state", &got)
		var names []string
		zone := ""
		for _, n := range got.Nodes {
			names, zone = append(names, n.Name), n.Labels[corev1.LabelTopologyZone]
		}
		if status != 200 || got.User != want.User || !slices.Equal(names, want.nodes) || zone != want.zone ||
			(len(got.Leaders) > 0) != want.leaders || (len(got.Streams) > 0) != want.leaders || got.Cluster != "test" || got.ClusterWarning != "" {
			t.Errorf("%q: got %d %+v\nwant %+v", user, status, got, want)
		}
	}
}

// sse is a server-sent event.
type sse struct{ id, event, data string }

// stream opens a stream, and returns its events.
func (v *visit) stream(t *testing.T, user, path string, header map[string]string) <-chan sse {
	t.Helper()
	got := v.do(t, user, http.MethodGet, path, "", header)
	if got.StatusCode != 200 || got.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(got.Body)
		t.Fatalf("%s: got %d %s", path, got.StatusCode, text)
	}
	body := io.Reader(got.Body)
	if got.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(got.Body)
		expect.Must(t, err)
		body = unpacked
	}
	events := make(chan sse, 10_000)
	go func() {
		defer close(events)
		readEvents(body, func(e sse) { events <- e })
	}()
	return events
}

// readEvents calls handle with the events of a stream until it ends. It does not read ahead.
func readEvents(body io.Reader, handle func(sse)) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	var e sse
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.event = value
		case "data":
			e.data = value
		case "":
			if lines.Text() == "" && e != (sse{}) {
				handle(e)
				e = sse{}
			}
		}
	}
}

// slow opens a stream of the shopper without a buffer. After the first event it reads on when resume is closed. The channel with
// all events, or their IDs, gets them at the end of the stream, or after the limit.
func (v *visit) slow(t *testing.T, path string, limit int, resume <-chan struct{}) <-chan []string {
	t.Helper()
	response, hangUp := v.pipes.Get(t, path, http.Header{"Authorization": {"Bearer token-" + shopper}})
	all := make(chan []string, 1)
	go func() {
		defer response.Body.Close()
		defer hangUp()
		var names []string
		readEvents(response.Body, func(e sse) {
			var event struct{ ID string }
			_ = json.Unmarshal([]byte(e.data), &event) // other messages have none
			if names = append(names, cmp.Or(e.event, event.ID)); len(names) == 1 {
				<-resume
			}
			if len(names) == limit {
				hangUp()
			}
		})
		all <- names
	}()
	return all
}

func next(t *testing.T, from <-chan sse) sse {
	t.Helper()
	select {
	case e, ok := <-from:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(expect.Patience):
		t.Fatal("no event came")
	}
	return sse{}
}

// untilReady returns the events up to ready.
func untilReady(t *testing.T, from <-chan sse) (identity api.Identity, pods []feed.PodRow) {
	t.Helper()
	for {
		e := next(t, from)
		switch e.event {
		case "reset":
			if err := json.Unmarshal([]byte(e.data), &identity); err != nil {
				t.Fatal(err)
			}
		case "pods":
			pods = append(pods, rowsOf(t, e)...)
		case "ready":
			return identity, pods
		}
	}
}

func rowsOf(t *testing.T, e sse) []feed.PodRow {
	t.Helper()
	var body struct{ Rows []feed.PodRow }
	if err := json.Unmarshal([]byte(e.data), &body); err != nil {
		t.Fatalf("%s: %v", e.data, err)
	}
	return body.Rows
}

// until returns the next row for which ok is true.
func until(t *testing.T, from <-chan sse, ok func(feed.PodRow) bool) feed.PodRow {
	t.Helper()
	for {
		if e := next(t, from); e.event == "pods" {
			for _, r := range rowsOf(t, e) {
				if ok(r) {
					return r
				}
			}
		}
	}
}

func (v *visit) testWatch(t *testing.T) {
	streams := map[string]<-chan sse{}
	for user, want := range map[string][]string{"": {"shop", "web"}, overall: {"shop", "web"}, shopper: {"shop"}} {
		header := map[string]string{}
		if user == overall {
			header["Accept-Encoding"] = "br, gzip"
		}
		streams[user] = v.stream(t, user, "/v1/watch", header)
		identity, pods := untilReady(t, streams[user])
		var got []string
		for _, p := range pods {
			if p.Workload != "Deployment/api" || p.Phase != "Running" || p.Node != v.node || p.Flags != feed.FlagReady {
				t.Errorf("%q: got %+v", user, p)
			}
			got = append(got, p.Namespace)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || identity.Cluster != "test" || identity.User.All != (user == "" || user == overall) {
			t.Errorf("%q: got %v as %+v, want %v", user, got, identity, want)
		}
	}
	for _, namespace := range []string{"web", "shop"} {
		pods, err := v.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		expect.Must(t, err)
		if err := v.Client().CoreV1().Pods(namespace).Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for user, from := range map[string]<-chan sse{"": streams[""], overall: streams[overall], shopper: streams[shopper]} {
		seen := map[string]bool{}
		until(t, from, func(r feed.PodRow) bool {
			seen[r.Namespace] = true
			return r.Namespace == "shop" && r.Flags == feed.FlagReady
		})
		if user == shopper && len(seen) != 1 {
			t.Errorf("the shopper saw pods of %v", seen)
		}
	}
	activity := sse{}
	for activity.event != "activity" {
		activity = next(t, streams[overall])
	}
	var a api.Activity
	if err := json.Unmarshal([]byte(activity.data), &a); err != nil || a.Time.IsZero() || len(a.Warnings) > 0 {
		t.Errorf("the activity is %s, %v", activity.data, err)
	}
}

// testChangedRights gives the shopper another namespace, and takes it away again.
func (v *visit) testChangedRights(t *testing.T) {
	from := v.stream(t, shopper, "/v1/watch", nil)
	untilReady(t, from)
	for _, change := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return v.allow(t.Context(), "web") }, []string{"shop", "web"}},
		{func() error {
			return v.Client().RbacV1().RoleBindings("web").Delete(t.Context(), shopper, metav1.DeleteOptions{})
		}, []string{"shop"}},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		for e := (sse{}); e.event != "missed"; {
			e = next(t, from)
		}
		seen := map[string]bool{}
		_, pods := untilReady(t, from)
		for _, p := range pods {
			seen[p.Namespace] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, change.want) {
			t.Errorf("got pods of %v, want %v", got, change.want)
		}
	}
}

func (v *visit) testNothingToSee(t *testing.T) {
	for _, path := range []string{"/v1/watch", "/v1/events"} {
		got := v.do(t, nobody, http.MethodGet, path, "", map[string]string{"Accept-Encoding": "identity"})
		if got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %d, want 403", path, got.StatusCode)
		}
		got.Body.Close()
	}
}

// testMissedEvents publishes more events than a queue has places while the shopper reads nothing. Few are for the shopper.
func (v *visit) testMissedEvents(t *testing.T) {
	resume := make(chan struct{})
	got := v.slow(t, "/v1/events?type=verdict", 4, resume)
	witness := v.stream(t, overall, "/v1/events?pod=shop/last", nil)
	var want []string
	for range 3 {
		want = append(want, v.publish(t, "shop", "slow"))
	}
	for range 1100 {
		v.publish(t, "web", "other")
	}
	want = append(want, v.publish(t, "shop", "last"))
	next(t, witness)
	close(resume)
	if all := <-got; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
}

// testSlowLoser takes all rights of a shopper whose clients read nothing in the meantime. They get only what was sent before.
func (v *visit) testSlowLoser(t *testing.T) {
	var ids []string
	for range 5 {
		ids = append(ids, v.publish(t, "shop", "loser"))
	}
	resume := make(chan struct{})
	watch, past := v.slow(t, "/v1/watch", 5, resume), v.slow(t, "/v1/events?follow=false&pod=shop/loser", 0, resume)
	expect.Must(t, v.Client().RbacV1().RoleBindings("shop").Delete(t.Context(), shopper, metav1.DeleteOptions{}))
	time.Sleep(11 * time.Second) // an answer about rights is used for ten seconds
	close(resume)
	if got, want := <-watch, []string{"reset", "nodes"}; !slices.Equal(got, want) {
		t.Errorf("the watch: got %v, want %v", got, want)
	}
	if got := <-past; !slices.Equal(got, ids[:2]) {
		t.Errorf("the past: got %v, want %v", got, ids[:2])
	}
	expect.Must(t, v.allow(t.Context(), "shop"))
	expect.Eventually(t, "the shopper sees its pods", func() bool {
		return v.get(t, shopper, "/v1/workloads/Deployment/shop/api", nil) == http.StatusOK
	})
}

// publish publishes a verdict about a pod and returns its ID.
func (v *visit) publish(t *testing.T, namespace, name string) string {
	t.Helper()
	v.sent++
	e := schematest.Event(t, "/clusters/test/actuator", schemas.Verdict{
		Profile: "default", Strategy: "PodLifeTime", Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: v.node, Event: "x"},
		Intent:  schemas.Intent{ID: fmt.Sprint("i-", v.sent), Pod: schemas.PodRef{Namespace: namespace, Name: name, UID: "u"}, Node: v.node},
		Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "<b>&\u2028",
	}, time.Now(), schemas.Event{})
	e.ID = fmt.Sprint("verdict-", v.sent)
	if _, err := v.bus.Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return e.ID
}

func idOf(t *testing.T, e sse) string {
	t.Helper()
	var event struct{ ID string }
	if err := json.Unmarshal([]byte(e.data), &event); err != nil || e.event != "" || e.id == "" {
		t.Fatalf("%+v: %v", e, err)
	}
	return event.ID
}

func (v *visit) testEvents(t *testing.T) {
	streams := map[string]<-chan sse{}
	for _, path := range []string{"/v1/events", "/v1/events?namespace=web&type=verdict", "/v1/events?limit=1"} {
		streams[overall+path] = v.stream(t, overall, path, nil)
	}
	streams[shopper] = v.stream(t, shopper, "/v1/events", nil)
	ids := []string{v.publish(t, "web", "a"), v.publish(t, "shop", "b"), v.publish(t, "web", "c")}
	for stream, want := range map[string][]string{
		overall + "/v1/events": ids, overall + "/v1/events?namespace=web&type=verdict": {ids[0], ids[2]}, overall + "/v1/events?limit=1": ids[:1], shopper: ids[1:2],
	} {
		var got []string
		for range want {
			got = append(got, idOf(t, next(t, streams[stream])))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", stream, got, want)
		}
	}
	if _, open := <-streams[overall+"/v1/events?limit=1"]; open {
		t.Error("the stream with a limit goes on")
	}
	var state api.State
	expect.Eventually(t, "the state has the deferred pods", func() bool {
		return v.get(t, overall, "/v1/state", &state) == 200 && len(state.Deferred) == 1
	}) // all of one UID
	for user, want := range map[string]int{overall: 1, nobody: 0} {
		if v.get(t, user, "/v1/state", &state); len(state.Deferred) != want {
			t.Errorf("%s sees %d deferred pods, want %d", user, len(state.Deferred), want)
		}
	}
}

func (v *visit) testResumedEvents(t *testing.T) {
	first := v.publish(t, "shop", "one")
	past := collect(t, v.stream(t, overall, "/v1/events?follow=false&pod=shop/one", nil))
	if len(past) != 1 || idOf(t, past[0]) != first {
		t.Fatalf("got %v, want %s", past, first)
	}
	second, third := v.publish(t, "shop", "one"), v.publish(t, "shop", "one")
	resumed := v.stream(t, overall, "/v1/events?pod=shop/one", map[string]string{"Last-Event-ID": past[0].id})
	fourth := v.publish(t, "shop", "one")
	var got []string
	for range 3 {
		got = append(got, idOf(t, next(t, resumed)))
	}
	if want := []string{second, third, fourth}; !slices.Equal(got, want) {
		t.Errorf("resumed: got %v, want %v", got, want)
	}
	for _, since := range []string{"1h", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)} {
		all := collect(t, v.stream(t, overall, "/v1/events?follow=false&pod=shop/one&since="+since, nil))
		if len(all) != 4 {
			t.Errorf("since %s: got %v, want 4 events", since, all)
		}
	}
	lost := v.stream(t, overall, "/v1/events?pod=shop/one", map[string]string{"Last-Event-ID": "999999999"})
	if e := next(t, lost); e.event != "missed" {
		t.Errorf("after a number that is too high: got %+v, want missed", e)
	}
	if got := idOf(t, next(t, lost)); got != first {
		t.Errorf("then got %s, want %s", got, first)
	}
	confined := v.stream(t, shopper, "/v1/events?pod=shop/one", map[string]string{"Last-Event-ID": "999999999"})
	fifth := v.publish(t, "shop", "one")
	if got := idOf(t, next(t, confined)); got != fifth {
		t.Errorf("the shopper after a number that is too high: got %s, want %s", got, fifth)
	}
}

func collect(t *testing.T, from <-chan sse) (all []sse) {
	t.Helper()
	for e := range from {
		all = append(all, e)
	}
	return all
}

func (v *visit) testBadQueries(t *testing.T) {
	for _, query := range []string{
		"type=nothing", "type=scope", "outcome=won", "pod=shop", "since=yesterday", "since=-1h", "limit=-1", "limit=x", "follow=perhaps",
		"type=delta&outcome=evicted",
	} {
		if got := v.get(t, overall, "/v1/events?"+query, nil); got != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d, want 422", query, got)
		}
	}
	got := v.do(t, overall, http.MethodGet, "/v1/events", "", map[string]string{"Last-Event-ID": "x"})
	if got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("Last-Event-ID: got %d, want 422", got.StatusCode)
	}
}

func (v *visit) testTooManyStreams(t *testing.T) {
	for _, path := range []string{"/v1/watch", "/v1/events"} {
		var open []*http.Response
		expect.Eventually(t, "eight streams are open, and no other one opens", func() bool {
			got := v.do(t, shopper, http.MethodGet, path, "", nil)
			if got.StatusCode == http.StatusOK {
				open = append(open, got)
				return false
			}
			return got.StatusCode == http.StatusTooManyRequests && got.Header.Get("Retry-After") != "" && len(open) <= 8
		})
		for _, r := range open {
			r.Body.Close()
		}
	}
}

func (v *visit) testRequests(t *testing.T) {
	own, other := ask("keep", pods("shop")), ask("keep", pods("web"))
	own.Sender, own.Name, own.Requester = "http", "own", shopper
	other.Sender, other.Name, other.Requester = "http", "other", overall
	for _, r := range []schemas.Request{own, other} {
		e, err := schemas.NewEvent("/clusters/test/http", r, time.Now(), schemas.Event{})
		if err == nil {
			_, err = v.bus.Publish(t.Context(), e)
		}
		expect.Must(t, err)
	}
	for user, want := range map[string][]string{"": {"other", "own"}, overall: {"other", "own"}, shopper: {"own"}, nobody: nil} {
		expect.Eventually(t, fmt.Sprintf("%q sees the requests %v", user, want), func() bool { // the list is shared for a second
			var got struct{ Requests []schemas.Request }
			status := v.get(t, user, "/v1/requests", &got)
			var names []string
			for _, r := range got.Requests {
				names = append(names, r.Name)
			}
			slices.Sort(names)
			return status == 200 && slices.Equal(names, want)
		})
	}
	for _, c := range []struct {
		user, path string
		want       int
	}{
		{shopper, "http/own", 200}, {shopper, "http/other", 403}, {overall, "http/own", 200}, {"", "http/other", 200},
		{overall, "http/nothing", 404}, {nobody, "http/own", 403}, {overall, "http/A_B", 422},
	} {
		var got struct{ Request schemas.Request }
		if status := v.get(t, c.user, "/v1/requests/"+c.path, &got); status != c.want || status == 200 && "http/"+got.Request.Name != c.path {
			t.Errorf("%q %s: got %d %+v, want %d", c.user, c.path, status, got, c.want)
		}
	}
	v.testForeignRequests(t)
	drain := schemas.Request{Action: schemas.ActionMaintain, Reason: "x", Maintenance: &schemas.NodeRequest{Node: v.node, Stage: v1alpha1.Drain}}
	e := schematest.Event(t, "/somebody", drain, time.Now(), schemas.Event{})
	header := map[string]string{"Content-Type": "application/json", "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": schemas.RequestType}
	if got := v.do(t, shopper, http.MethodPost, "/v1/requests", string(e.Data), header); got.StatusCode != 403 {
		t.Errorf("the drain of a user without the right: got %d, want 403", got.StatusCode)
	}
	drain.Maintenance.Force = []v1alpha1.Guard{v1alpha1.AllNodes}
	e = schematest.Event(t, "/somebody", drain, time.Now(), schemas.Event{})
	got := v.do(t, "", http.MethodPost, "/v1/requests", string(e.Data), header)
	name := got.Header.Get("Rehome-Request")
	var made struct{ Request schemas.Request }
	if status := v.get(t, "", "/v1/requests/"+name, &made); got.StatusCode != 202 || status != 200 || made.Request.Requester != "operator" ||
		!slices.Equal(made.Request.Maintenance.Force, drain.Maintenance.Force) {
		t.Errorf("the forced drain of the operator: got %d and %d %+v", got.StatusCode, status, made)
	}
}

// testForeignRequests reads names that two users used one after the other.
func (v *visit) testForeignRequests(t *testing.T) {
	publish := func(content schemas.Payload, cause schemas.Event) schemas.Event {
		e, err := schemas.NewEvent("/clusters/test/http", content, time.Now(), cause)
		if err == nil {
			_, err = v.bus.Publish(t.Context(), e)
		}
		expect.Must(t, err)
		return e
	}
	for _, c := range []struct {
		name              string
		receipt, open     string // the users of the last receipt, and of the open request
		reader            string
		status            int
		seesReceipt, sees bool
	}{
		{"finished", shopper, "", shopper, 200, true, false},
		{"finished-foreign", overall, "", shopper, 403, false, false},
		{"finished-foreign-seen", shopper, "", overall, 200, true, false},
		{"open-after-foreign", overall, shopper, shopper, 200, false, true},
		{"foreign-after-own", shopper, overall, shopper, 200, true, false},
		{"foreign-after-foreign", overall, overall, shopper, 403, false, false},
		{"both-seen", shopper, overall, overall, 200, true, true},
	} {
		request := func(user string) schemas.Request {
			r := ask("keep", pods("web"))
			r.Sender, r.Name, r.Requester = "http", c.name, user
			return r
		}
		e := publish(request(c.receipt), schemas.Event{})
		publish(schemas.Receipt{
			Sender: "http", Name: c.name, Requester: c.receipt, State: schemas.RequestFinished, Reason: schemas.ReceiptDone,
		}, e)
		open, err := v.bus.OpenRequests(t.Context())
		expect.Must(t, err)
		for _, o := range open {
			if o.Channel() == e.Channel {
				expect.Must(t, v.bus.DropRequest(t.Context(), schemas.Event{ID: e.ID, Channel: e.Channel, Sequence: o.Sequence}))
			}
		}
		if c.open != "" {
			publish(request(c.open), schemas.Event{})
		}
		var got struct {
			Request *schemas.Request
			Receipt *schemas.Receipt
		}
		status := v.get(t, c.reader, "/v1/requests/http/"+c.name, &got)
		if status != c.status || (got.Request != nil) != c.sees || (got.Receipt != nil) != c.seesReceipt {
			t.Errorf("%s: got %d, %+v, and %+v; want %+v", c.name, status, got.Request, got.Receipt, c)
		}
	}
}

func (v *visit) testLostBus(t *testing.T) {
	from := v.stream(t, overall, "/v1/watch", nil)
	untilReady(t, from)
	v.server.Stop()
	for {
		e := next(t, from)
		var a api.Activity
		if e.event != "activity" {
			continue
		}
		if err := json.Unmarshal([]byte(e.data), &a); err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(a.Warnings, []string{"the bus is unavailable"}) {
			break
		}
	}
	expect.Eventually(t, "the state is refused", func() bool { return v.get(t, overall, "/v1/state", nil) == http.StatusServiceUnavailable })
	pods, err := v.Client().CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
	expect.Must(t, err)
	for user, want := range map[string]bool{shopper: true, overall: false} {
		var pod explain.Explanation
		var workload explain.WorkloadExplanation
		v.get(t, user, "/v1/pods/shop/"+pods.Items[0].Name, &pod)
		v.get(t, user, "/v1/workloads/Deployment/shop/api", &workload)
		hidden := 0
		all := append(pod.Unknown, workload.Unknown...)
		for _, u := range all {
			if u.Why == "it cannot be read; users who may see everything get the reason" {
				hidden++
			}
		}
		if len(all) < 2 || want && hidden < len(all) || !want && hidden > 0 {
			t.Errorf("%s gets the reasons of missing parts %+v, want hidden reasons: %v", user, all, want)
		}
	}
}

func (v *visit) testExplanations(t *testing.T) {
	pods, err := v.Client().CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
	expect.Must(t, err)
	name := pods.Items[0].Name
	for _, c := range []struct {
		user, path string
		want       int
	}{
		{"", "pods/shop/" + name, 200}, {shopper, "pods/shop/" + name, 200}, {shopper, "pods/web/x", 403}, {overall, "pods/shop/nothing", 404},
		{"", "nodes/" + v.node, 200}, {overall, "nodes/" + v.node, 200}, {shopper, "nodes/" + v.node, 403}, {overall, "nodes/nothing", 404},
		{"", "workloads/Deployment/shop/api", 200}, {shopper, "workloads/Deployment/shop/api", 200}, {shopper, "workloads/Deployment/web/api", 403},
		{overall, "workloads/Deployment/shop/nothing", 404}, {overall, "pods/shop/" + name + "?since=never", 422},
	} {
		if got := v.get(t, c.user, "/v1/"+c.path, nil); got != c.want {
			t.Errorf("%q %s: got %d, want %d", c.user, c.path, got, c.want)
		}
	}
	var node explain.NodeExplanation
	if v.get(t, overall, "/v1/nodes/"+v.node, &node); node.Node != v.node || node.Pods != 2 {
		t.Errorf("the node: got %+v, want 2 pods", node)
	}
	var workload explain.WorkloadExplanation
	v.get(t, shopper, "/v1/workloads/Deployment/shop/api", &workload)
	if len(workload.Pods) != 1 || workload.Pods[0].Name != name || workload.Pods[0].Node != v.node || workload.Workload.Kind != "Deployment" {
		t.Errorf("the workload: got %+v, want the pod %s", workload, name)
	}
	var pod explain.Explanation
	v.get(t, overall, "/v1/pods/shop/"+name, &pod)
	if pod.Pod.Node != v.node || pod.Pod.There == nil || !*pod.Pod.There || pod.Replacement == "" {
		t.Errorf("the pod: got %+v", pod)
	}
	if v.get(t, shopper, "/v1/pods/shop/"+name, &pod); pod.Pod.Name != name {
		t.Errorf("the pod for the shopper: got %+v", pod)
	}
}

// testInventedNamespaces has a user without rights everywhere ask for pods in many namespaces. Only one exists.
func (v *visit) testInventedNamespaces(t *testing.T) {
	const most = 40
	before := v.reviews.n.Load()
	for i := range most {
		namespace := fmt.Sprint("invented-", i)
		if i == 0 {
			namespace = "web"
		}
		for _, path := range []string{"/v1/pods/" + namespace + "/x", "/v1/workloads/Deployment/" + namespace + "/x"} {
			var got struct{ Detail string }
			answer := v.do(t, shopper, http.MethodGet, path, "", nil)
			expect.Must(t, json.NewDecoder(answer.Body).Decode(&got))
			want := "user shopper may not get pods in namespace " + namespace
			if answer.StatusCode != http.StatusForbidden || got.Detail != want {
				t.Errorf("%s: got %d %q, want 403 %q", path, answer.StatusCode, got.Detail, want)
			}
		}
	}
	if n := v.reviews.n.Load() - before; n >= most/2 {
		t.Errorf("%d reviews for %d namespaces, want fewer than %d", n, most, most/2)
	}
	if got := v.get(t, overall, "/v1/pods/invented-1/x", nil); got != http.StatusNotFound {
		t.Errorf("the user with all rights: got %d, want 404", got)
	}
}

// testSimulate evicts the pods of a tainted node, and nothing is moved.
func (v *visit) testSimulate(t *testing.T) {
	const policy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig: [{name: RemovePodsViolatingNodeTaints}]
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`
	post := func(user string, body any) (int, string) {
		text := expect.ToJSON(t, body)
		got := v.do(t, user, http.MethodPost, "/v1/simulate", string(text), map[string]string{"Content-Type": "application/json"})
		answer, err := io.ReadAll(got.Body)
		expect.Must(t, err)
		return got.StatusCode, string(answer)
	}
	var calls atomic.Int64
	prometheus := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(prometheus.Close)
	measured := string(api.MeasuredPolicy(prometheus.URL, "up"))
	if got, text := post(overall, map[string]any{"policy": measured}); got != 422 || calls.Load() != 0 {
		t.Errorf("another Prometheus server: got %d %s after %d calls of it, want 422 and no call", got, text, calls.Load())
	}
	for profile, want := range map[string]int{"/nothing": 422, "MostAllocated": 200} {
		text := "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\nscheduler: {profile: " + profile + "}\n"
		if got, answer := post(overall, map[string]any{"policy": text}); got != want {
			t.Errorf("the scheduler profile %s: got %d %s, want %d", profile, got, answer, want)
		}
	}
	for _, c := range []struct {
		user string
		body any
		want int
	}{
		{overall, map[string]any{"policy": policy}, 200}, {"", map[string]any{"policy": policy, "untilSettled": true, "rounds": 3}, 200},
		{shopper, map[string]any{"policy": policy}, 403}, {overall, map[string]any{"policy": "a: [", "rounds": 1}, 422},
		{overall, map[string]any{}, 422}, {overall, map[string]any{"policy": policy, "rounds": 1000}, 422},
		{overall, map[string]any{"policy": strings.Repeat("#", 2<<20)}, 413},
	} {
		if got, text := post(c.user, c.body); got != c.want {
			t.Errorf("%q: got %d %.300s, want %d", c.user, got, text, c.want)
		}
	}
	if _, err := v.AddNodes(t.Context(), 1); err != nil { // with one node there is no other place
		t.Fatal(err)
	}
	expect.Must(t, v.PatchNode(t.Context(), v.node, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`))
	expect.Eventually(t, "both pods would move", func() bool {
		var got api.Simulation
		status, text := post(overall, map[string]any{"policy": policy})
		return status == 200 && json.Unmarshal([]byte(text), &got) == nil && len(got.Rounds) == 1 && len(got.Rounds[0].Moves) == 2
	})
}
