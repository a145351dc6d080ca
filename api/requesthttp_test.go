package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	view "github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// The users have rights for: the namespace shop, all namespaces, also maintenances, also overrides, and nothing. The last one
// sends too many requests.
const (
	ofShop  = "of-shop"
	wide    = "wide"
	keeper  = "keeper"
	mighty  = "mighty"
	nobody  = "nobody"
	hurried = "hurried"
)

// TestRequestsOverHTTP shares a control plane and a bus among its parts. The last parts stop the API server and the bus.
func TestRequestsOverHTTP(t *testing.T) {
	users := []cluster.User{{Name: ofShop, Token: "token-shop", Groups: []string{"askers"}}}
	for _, name := range []string{wide, keeper, mighty, nobody, hurried} {
		users = append(users, cluster.User{Name: name, Token: "token-" + name})
	}
	s := &stage{T: t, c: clustertest.New(t, cluster.Options{Users: users})}
	s.server = bustest.Server(t, embed.Options{})
	s.bus = bustest.Connect(t, bus.Options{Server: s.server})
	bustest.SetUp(t, s.bus, bus.Setup{})
	s.grant()
	web := httptest.NewServer(newServer(t, s.c, s.bus).Network())
	t.Cleanup(web.Close)
	s.url = web.URL
	t.Run("no receipt", s.testUnanswered)
	s.answer()
	t.Run("rights", s.testRights)
	t.Run("both modes", s.testModes)
	t.Run("rejected by the watcher", s.testRejected)
	t.Run("malformed", s.testMalformed)
	t.Run("cancel", s.testCancel)
	t.Run("rate limit", s.testHurried)
	t.Run("right_that_is_taken_away", s.testRevoked)
	t.Run("no bus", s.testNoBus)
	t.Run("no API server", s.testNoAPIServer)
}

// newServer makes a server with a filled cache.
func newServer(t testing.TB, c *cluster.Cluster, b *bus.Bus, wraps ...transport.WrapperFunc) *api.Server {
	t.Helper()
	config := c.RESTConfig()
	for _, wrap := range wraps {
		config.Wrap(wrap)
	}
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	cache, err := view.New(view.Config{Client: client, Kinds: api.Kinds()})
	expect.Must(t, err)
	a, err := api.New(api.Config{
		Client: client, Cluster: cache, Bus: b, Policy: func() policy.Policy { return policy.Policy{} }, Log: slog.New(slog.DiscardHandler),
		Settings: settings.Settings{Cluster: "test", Installation: "rehome", LeaseNamespace: "kube-system"},
	})
	expect.Must(t, err)
	expect.Background(t, cache.Run, a.Run)
	if !cache.WaitForSync(t.Context()) {
		t.Fatal("the cache is not filled")
	}
	return a
}

type stage struct {
	*testing.T
	c      *cluster.Cluster
	server *embed.Server
	bus    *bus.Bus
	url    string
	// answering is locked from the first receipt of a request until its name is free again.
	answering sync.Mutex
}

// grant creates the RBAC rules of the users: one through its group in a namespace, others in all namespaces.
func (s *stage) grant() {
	s.Helper()
	rbac := s.c.Client().RbacV1()
	must := func(err error) { s.Helper(); expect.Must(s, err) }
	must(s.c.AddNamespace(s.Context(), "shop"))
	create := func(resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"rehome.dev"}, Resources: resources, Verbs: []string{"create"}}
	}
	deleteNodes := func(names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, ResourceNames: names, Verbs: []string{"delete"}}
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"ask":          {create("requests")},
		"maintain":     {create("requests", "nodemaintenances"), deleteNodes("n1")},
		"ask-mightily": {create("requests", "requests/override", "nodemaintenances"), deleteNodes()},
	} {
		_, err := rbac.ClusterRoles().Create(s.Context(),
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		must(err)
	}
	askers := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "askers"}
	must(s.c.Bind(s.Context(), askers, "shop", "ask"))
	for user, of := range map[string]string{wide: "ask", keeper: "maintain", mighty: "ask-mightily", hurried: "ask"} {
		must(s.c.Bind(s.Context(), cluster.UserSubject(user), "", of))
		must(s.c.WaitForRight(s.Context(), authorizationv1.SubjectAccessReviewSpec{
			User:               user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "rehome.dev", Resource: "requests", Verb: "create"},
		}))
	}
}

// answer plays the watcher until the end of the test: it rejects requests whose reason is a rejection, leaves the requests to
// keep open, and finishes the others at once.
func (s *stage) answer() {
	expect.Background(s, func(ctx context.Context) error {
		return s.bus.FollowRequests(ctx, func(ctx context.Context, _ schemas.Event, _ time.Time, read func() schemas.Event) error {
			s.answering.Lock()
			defer s.answering.Unlock()
			e := read()
			r, err := schemas.Decode[schemas.Request](e)
			if err != nil || r.Reason == "unanswered" {
				return err
			}
			receipt := schemas.Receipt{Sender: r.Sender, Name: r.Name, State: schemas.RequestAccepted, Reason: schemas.ReceiptAccepted}
			if why, rejected := strings.CutPrefix(r.Reason, "reject: "); rejected {
				receipt.State, receipt.Reason = schemas.RequestRejected, schemas.ReceiptReason(why)
			}
			finished := receipt
			finished.State, finished.Reason = schemas.RequestFinished, schemas.ReceiptDone
			for _, next := range []schemas.Receipt{receipt, finished} {
				event, err := schemas.NewEvent("/clusters/test/watcher", next, time.Now(), e)
				if err == nil {
					_, err = s.bus.Publish(ctx, event)
				}
				if err != nil || r.Reason == "keep" {
					return err
				}
				if receipt.State == schemas.RequestRejected {
					break
				}
			}
			return s.bus.DropRequest(ctx, e)
		})
	})
}

// reply is an HTTP response.
type reply struct {
	status int
	header http.Header
	body   string
}

func (s *stage) post(t *testing.T, user string, r schemas.Request) reply {
	t.Helper()
	body, err := cloudevent.WriteStructured(s.event(t, r))
	expect.Must(t, err)
	return s.send(t, http.MethodPost, "Bearer token-"+strings.TrimPrefix(user, "of-"), cloudevent.StructuredJSON, body, nil)
}

func (s *stage) event(t *testing.T, r schemas.Request) schemas.Event {
	t.Helper()
	e := schematest.Event(t, "/somebody", r, time.Now(), schemas.Event{})
	e.Subject = "requests/somebody"
	return e
}

func (s *stage) send(t *testing.T, method, authorization, content string, body []byte, header map[string]string) reply {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, s.url+"/v1/requests", strings.NewReader(string(body)))
	expect.Must(t, err)
	q.Header.Set("Content-Type", content)
	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}
	for name, value := range header {
		q.Header.Set(name, value)
	}
	got, err := http.DefaultClient.Do(q)
	expect.Must(t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	expect.Must(t, err)
	var problem struct{ Detail string }
	if got.Header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(text, &problem) == nil {
		text = []byte(problem.Detail)
	}
	s.answering.Lock() // the receipt comes before the name is free
	defer s.answering.Unlock()
	return reply{got.StatusCode, got.Header, string(text)}
}

// ask returns a request to deschedule a target.
func ask(reason string, t schemas.Target) schemas.Request {
	return schemas.Request{Action: schemas.ActionDeschedule, Reason: reason, Target: &t}
}

func pods(namespaces ...string) schemas.Target {
	var t schemas.Target
	for _, n := range namespaces {
		t.Pods = append(t.Pods, schemas.PodTarget{Namespace: n, Name: "a"})
	}
	return t
}

func (s *stage) testRights(t *testing.T) {
	var many []string
	for i := range 21 {
		many = append(many, fmt.Sprintf("n-%d", i))
	}
	override := ask("x", pods("shop"))
	override.Override = []string{"MinPodAge"}
	const everywhere = "in all namespaces"
	create := func(resource, where string) string {
		return fmt.Sprintf("create resource %q in API group %q %s", resource, "rehome.dev", where)
	}
	maintenance := func(node, provider string, stage v1alpha1.Stage) schemas.Request {
		return schemas.Request{
			Action: schemas.ActionMaintain, Reason: "x",
			Maintenance: &schemas.NodeRequest{Node: node, ProviderID: provider, Stage: stage},
		}
	}
	maintain := maintenance("n1", "", v1alpha1.Drain)
	forced := maintain
	forced.Maintenance = &schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain, Force: []v1alpha1.Guard{v1alpha1.AllNodes}}
	for _, c := range []struct {
		name, user string
		request    schemas.Request
		lacks      string // empty: 202
	}{
		{"pods of own namespace", ofShop, ask("x", pods("shop", "shop")), ""},
		{"pods of another namespace", ofShop, ask("x", pods("shop", "web")), create("requests", "in namespace web")},
		{"workload of own namespace", ofShop, ask("x", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: "shop", Name: "a"}}), ""},
		{"workload of another namespace", ofShop, ask("x", schemas.Target{Workload: &schemas.WorkloadTarget{Kind: "Deployment", Namespace: "web", Name: "a"}}),
			create("requests", "in namespace web")},
		{"labels in own namespace", ofShop, ask("x", schemas.Target{Selector: &schemas.SelectorTarget{Namespace: "shop", Labels: "a"}}), ""},
		{"labels in all namespaces", ofShop, ask("x", schemas.Target{Selector: &schemas.SelectorTarget{Labels: "a"}}), create("requests", everywhere)},
		{"a node", ofShop, ask("x", schemas.Target{Node: "n1"}), create("requests", everywhere)},
		{"two fields, one in own namespace", ofShop, ask("x", schemas.Target{Pods: pods("shop").Pods, Node: "n1"}), create("requests", everywhere)},
		{"an evaluation", ofShop, schemas.Request{Action: schemas.ActionEvaluate, Reason: "x"}, create("requests", everywhere)},
		{"an override", ofShop, override, create("requests/override", "in namespace shop")},
		{"override with wide rights", wide, override, create("requests/override", "in namespace shop")},
		{"override allowed", mighty, override, ""},
		{"node with wide rights", wide, ask("x", schemas.Target{Node: "n1"}), ""},
		{"evaluation with wide rights", wide, schemas.Request{Action: schemas.ActionEvaluate, Reason: "x"}, ""},
		{"pods of many namespaces", wide, ask("x", pods(many...)), ""},
		{"maintenance", ofShop, maintain, create("requests", everywhere)},
		{"maintenance without nodemaintenances", wide, maintain, create("nodemaintenances", everywhere)},
		{"maintenance allowed", keeper, maintain, ""},
		{"maintenance without delete on the node", keeper, maintenance("n2", "", v1alpha1.Cordon), "delete the node n2"},
		{"maintenance by provider ID", keeper, maintenance("", "i-1", v1alpha1.Drain), "delete all nodes"},
		{"maintenance by provider ID allowed", mighty, maintenance("", "i-1", v1alpha1.Drain), ""},
		{"end of a maintenance", keeper, maintenance("n2", "", v1alpha1.Complete), ""},
		{"maintenance with force", keeper, forced, create("requests/override", everywhere)},
		{"maintenance with force allowed", mighty, forced, ""},
		{"no rights", nobody, ask("x", pods("shop")), create("requests", "in namespace shop")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.post(t, c.user, c.request)
			status, text := http.StatusAccepted, ""
			if c.lacks != "" {
				status, text = http.StatusForbidden, "user "+c.user+" cannot "+c.lacks
			}
			if got.status != status || text != "" && got.body != text {
				t.Errorf("got %+v\nwant %d %s", got, status, text)
			}
		})
	}
	for name, authorization := range map[string]string{
		"no token": "", "another scheme": "Basic dTpw", "an empty token": "Bearer ", "unknown token": "Bearer token-stranger",
	} {
		t.Run(name, func(t *testing.T) {
			body, err := cloudevent.WriteStructured(s.event(t, ask("x", pods("shop"))))
			expect.Must(t, err)
			got := s.send(t, http.MethodPost, authorization, cloudevent.StructuredJSON, body, nil)
			if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("got %+v, want 401", got)
			}
		})
	}
}

func (s *stage) testModes(t *testing.T) {
	want := ask("x", pods("shop"))
	want.Sender, want.Name, want.Requester = "http", "mine", ofShop
	asked := want
	asked.Sender, asked.Requester = "admin", "somebody else"
	e := s.event(t, asked)
	header := map[string]string{}
	err := cloudevent.WriteAttributes(e, func(name, value string) {
		if name != "datacontenttype" {
			header["ce-"+name] = value
		}
	})
	body, structured := cloudevent.WriteStructured(e)
	if err = errors.Join(err, structured); err != nil {
		t.Fatal(err)
	}
	for mode, send := range map[string]func() reply{
		"binary": func() reply {
			return s.send(t, http.MethodPost, "bearer token-shop", "application/json", e.Data, header)
		},
		"structured": func() reply {
			return s.send(t, http.MethodPost, "Bearer token-shop", cloudevent.StructuredJSON, body, nil)
		},
	} {
		t.Run(mode, func(t *testing.T) {
			seen := s.tap(t)
			got := send()
			request := <-seen
			sent, err := schemas.Decode[schemas.Request](request)
			if err != nil || !reflect.DeepEqual(sent, want) || request.Channel != "rehome.request.http.mine" || request.ID == e.ID ||
				request.Source != "/clusters/test/http" || request.TraceParent[:35] != e.TraceParent[:35] {
				t.Errorf("on the bus: error %v, got %+v %+v\nwant %+v", err, request, sent, want)
			}
			var receipt schemas.Event
			if mode == "structured" {
				receipt, err = cloudevent.ReadStructured([]byte(got.body))
			} else {
				attributes, unreadable := cloudevent.ReadAttributes(got.header)
				attributes["datacontenttype"] = got.header.Get("Content-Type")
				receipt, err = cloudevent.ReadBinary(attributes, []byte(got.body))
				err = errors.Join(err, unreadable)
			}
			r, wrong := schemas.Decode[schemas.Receipt](receipt)
			wanted := schemas.Receipt{Sender: "http", Name: "mine", State: schemas.RequestAccepted, Reason: schemas.ReceiptAccepted}
			if err = errors.Join(err, wrong); err != nil || got.status != http.StatusAccepted || got.header.Get("Rehome-Request") != "http/mine" ||
				!reflect.DeepEqual(r, wanted) || receipt.CausationID != request.ID {
				t.Errorf("error %v, got %+v\nreceipt %+v\nwant %+v", err, got, r, wanted)
			}
		})
	}
	plain := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/ci", "ce-type": schemas.RequestType}
	if got := s.send(t, http.MethodPost, "Bearer token-shop", "application/json", e.Data, plain); got.status != http.StatusAccepted {
		t.Errorf("an event with only the required attributes: got %+v, want 202", got)
	}
	first, second := s.post(t, wide, ask("x", pods("shop"))), s.post(t, wide, ask("x", pods("shop")))
	a, b := first.header.Get("Rehome-Request"), second.header.Get("Rehome-Request")
	if !strings.HasPrefix(a, "http/http-") || !strings.HasPrefix(b, "http/http-") || a == b {
		t.Errorf("requests without a name got %q and %q, want two names", a, b)
	}
}

// tap returns a channel with the next request that is published.
func (s *stage) tap(t *testing.T) <-chan schemas.Event {
	t.Helper()
	seen := make(chan schemas.Event, 10)
	go func() {
		_ = s.bus.Subscribe(t.Context(), []string{"rehome.request.http.mine", "rehome.request.http.ready"}, nil, func(e schemas.Event) error {
			seen <- e
			return nil
		})
	}()
	for { // until the subscription exists
		e := s.event(t, schemas.Request{Sender: "http", Name: "ready", Action: schemas.ActionEvaluate, Reason: "x"})
		if _, err := s.bus.Publish(t.Context(), e); err != nil && !errors.Is(err, bus.ErrOpen) {
			t.Fatal(err)
		}
		select {
		case <-seen:
		case <-time.After(50 * time.Millisecond):
			continue
		}
		mine := make(chan schemas.Event, 1)
		go func() {
			for e := range seen {
				if e.Channel == "rehome.request.http.mine" {
					mine <- e
					return
				}
			}
		}()
		return mine
	}
}

func (s *stage) testRejected(t *testing.T) {
	for reason, status := range map[schemas.ReceiptReason]int{
		schemas.ReceiptNotAllowed: http.StatusConflict, schemas.ReceiptConflict: http.StatusConflict,
		schemas.ReceiptUnknownTarget: http.StatusUnprocessableEntity,
		schemas.ReceiptTooManyPods:   http.StatusUnprocessableEntity, schemas.ReceiptMalformed: http.StatusUnprocessableEntity,
		schemas.ReceiptPolicyUnknown: http.StatusUnprocessableEntity, schemas.ReceiptTooManyRequests: http.StatusTooManyRequests,
	} {
		t.Run(string(reason), func(t *testing.T) {
			got := s.post(t, mighty, ask("reject: "+string(reason), pods("shop")))
			e, err := cloudevent.ReadStructured([]byte(got.body))
			r, wrong := schemas.Decode[schemas.Receipt](e)
			if err = errors.Join(err, wrong); err != nil || got.status != status || r.Reason != reason || r.State != schemas.RequestRejected ||
				(got.header.Get("Retry-After") != "") != (status == http.StatusTooManyRequests) {
				t.Errorf("error %v, got %+v, want %d with the receipt", err, got, status)
			}
		})
	}
}

func (s *stage) testMalformed(t *testing.T) {
	whole, err := cloudevent.WriteStructured(s.event(t, ask("x", pods("shop"))))
	expect.Must(t, err)
	structured := func(change func(*schemas.Request)) []byte {
		r := ask("x", pods("shop"))
		change(&r)
		body, err := cloudevent.WriteStructured(s.event(t, r))
		expect.Must(t, err)
		return body
	}
	scope := expect.ToJSON(t, map[string]string{
		"specversion": "1.0", "id": "1", "source": "/x", "type": schemas.ScopeType, "subject": "x", "time": "2026-03-01T12:00:00Z",
		"correlationid": "1",
	})
	unknown := strings.Replace(string(whole), `"reason":"x"`, `"reason":"x","onlyIf":"idle"`, 1)
	const token = "Bearer token-wide"
	for _, c := range []struct {
		name, method, content string
		body                  []byte
		header                map[string]string
		status                int
		text                  string
	}{
		{"another method", http.MethodPut, cloudevent.StructuredJSON, whole, nil, 405, "want the method GET or POST, got PUT"},
		{"plain text", http.MethodPost, "text/plain", whole, nil, 415, `Content-Type is "text/plain"; want `},
		{"a batch", http.MethodPost, cloudevent.BatchJSON, whole, nil, 415, "Content-Type is "},
		{"binary without attributes", http.MethodPost, "application/json", whole, nil, 415, "Content-Type is "},
		{"compressed", http.MethodPost, cloudevent.StructuredJSON, whole, map[string]string{"Content-Encoding": "gzip"}, 415, "Content-Encoding is "},
		{"too large", http.MethodPost, cloudevent.StructuredJSON, make([]byte, 65<<10), nil, 413, "request body is too large"},
		{"no event", http.MethodPost, cloudevent.StructuredJSON, []byte("{}"), nil, 400, "read CloudEvent: invalid event: "},
		{"an event of another type", http.MethodPost, cloudevent.StructuredJSON, scope, nil, 400, ""},
		{"unknown field", http.MethodPost, cloudevent.StructuredJSON, []byte(unknown), nil, 422, `json: unknown field "onlyIf"`},
		{"invalid name", http.MethodPost, cloudevent.StructuredJSON, structured(func(r *schemas.Request) { r.Name = "a.b" }), nil, 422, "name: want "},
		{"no target", http.MethodPost, cloudevent.StructuredJSON, structured(func(r *schemas.Request) { r.Target = nil }), nil, 422, "target: want "},
		{"no action", http.MethodPost, cloudevent.StructuredJSON, structured(func(r *schemas.Request) { r.Action = "" }), nil, 422, "action: want "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.send(t, c.method, token, c.content, c.body, c.header)
			if got.status != c.status || !strings.HasPrefix(got.body, c.text) {
				t.Errorf("got %+v, want %d %s", got, c.status, c.text)
			}
		})
	}
}

func (s *stage) testCancel(t *testing.T) {
	override := ask("keep", pods("shop"))
	override.Override = []string{"MinPodAge"}
	open := map[string]schemas.Request{
		"of-shop": ask("keep", pods("shop")), "of-web": ask("keep", pods("web")), "with-override": override,
		"of-n1": {
			Action: schemas.ActionMaintain, Reason: "keep", Maintenance: &schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain},
		},
	}
	for name, r := range open {
		r.Name = name
		if got := s.post(t, mighty, r); got.status != http.StatusAccepted {
			t.Fatalf("%s: got %+v", name, got)
		}
	}
	again := ask("keep", pods("shop"))
	again.Name = "of-shop"
	if got := s.post(t, mighty, again); got.status != http.StatusConflict || got.body != "a request of this name is open" {
		t.Errorf("a request of the same name: got %+v, want 409", got)
	}
	for _, c := range []struct {
		user, request string
		want          int
	}{
		{ofShop, "of-shop", 202}, {ofShop, "of-web", 403}, {ofShop, "of-nobody", 403}, {ofShop, "with-override", 403},
		{wide, "of-web", 202}, {wide, "of-nobody", 202}, {wide, "with-override", 403}, {wide, "of-n1", 403},
		{keeper, "of-n1", 202}, {mighty, "with-override", 202}, {nobody, "of-shop", 403},
	} {
		got := s.post(t, c.user, schemas.Request{Action: schemas.ActionCancel, Reason: "x", Request: c.request})
		text := "user " + c.user + " may not cancel request " + c.request + ", or it is not open"
		if got.status != c.want || c.want == 403 && got.body != text {
			t.Errorf("%s cancels %s: got %+v, want %d", c.user, c.request, got, c.want)
		}
	}
}

func (s *stage) testUnanswered(t *testing.T) {
	began := time.Now()
	got := s.post(t, wide, ask("unanswered", pods("shop")))
	if took := time.Since(began); got.status != http.StatusAccepted || got.body != "" || got.header.Get("Rehome-Request") == "" || took < 5*time.Second {
		t.Errorf("after %v got %+v, want 202 without a body after 5s", took, got)
	}
}

func (s *stage) testHurried(t *testing.T) {
	for i := range 31 {
		got := s.post(t, hurried, schemas.Request{Action: "?", Reason: "x"})
		switch {
		case i < 30 && got.status != http.StatusUnprocessableEntity:
			t.Fatalf("%d: got %+v, want 422", i, got)
		case i == 30 && (got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == ""):
			t.Errorf("%d: got %+v, want 429", i, got)
		}
	}
	if got := s.post(t, wide, schemas.Request{Action: "?", Reason: "x"}); got.status != http.StatusUnprocessableEntity {
		t.Errorf("another user: got %+v, want 422", got)
	}
}

// testRevoked removes the binding of a user. Nothing remembers that the user had the right.
func (s *stage) testRevoked(t *testing.T) {
	node := ask("x", schemas.Target{Node: "n1"})
	if got := s.post(t, wide, node); got.status != http.StatusAccepted {
		t.Fatalf("before: got %d %s, want %d", got.status, got.body, http.StatusAccepted)
	}
	if err := s.c.Client().RbacV1().ClusterRoleBindings().Delete(t.Context(), wide, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got reply
	expect.Eventually(t, "the request is refused", func() bool {
		got = s.post(t, wide, node)
		return got.status != http.StatusAccepted
	})
	if want := "user " + wide + ` cannot create resource "requests" in API group "rehome.dev" in all namespaces`; got.status != http.StatusForbidden || got.body != want {
		t.Errorf("afterwards: got %d %q, want %d %q", got.status, got.body, http.StatusForbidden, want)
	}
}

func (s *stage) testNoBus(t *testing.T) {
	s.server.Stop()
	got := s.post(t, mighty, ask("x", pods("shop")))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "5" || got.body != "not possible now: the bus is unavailable" {
		t.Errorf("got %+v, want 503", got)
	}
}

func (s *stage) testNoAPIServer(t *testing.T) {
	if err := s.c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	got := s.post(t, mighty, ask("x", pods("shop")))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "5" ||
		got.body != "not possible now: the API server cannot review rights" {
		t.Errorf("got %+v, want 503", got)
	}
}
