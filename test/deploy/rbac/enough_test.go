package rbac

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// cast are the processes of an installation, each role in one of its own.
type cast struct {
	*world
	t        *testing.T
	kinds    rest.Interface
	common   []string // settings of all processes
	requests string   // the network address of the API, where requests are taken
	local    string   // its loopback address
	running  []*program.Program
}

// start starts a process with the token of an account, or none, and waits until it is ready.
func (c *cast) start(kubeconfig string, arguments []string, environment ...string) *program.Program {
	c.t.Helper()
	p := programtest.Start(c.t, c.rehome, arguments, slices.Concat(c.common, []string{kubeconfig}, environment))
	c.running = append(c.running, p)
	programtest.Ready(c.t, p)
	return p
}

// as is the setting with the token of an account of the deployment.
func (c *cast) as(account string) string {
	c.t.Helper()
	setting, err := c.kubeconfig(c.t.Context(), namespace, account)
	expect.Must(c.t, err)
	return setting
}

// end ends all processes in order, so that what they had open is in the audit log.
func (c *cast) end() {
	c.t.Helper()
	for _, p := range c.running {
		expect.Must(c.t, p.Signal(syscall.SIGTERM))
	}
	for _, p := range c.running {
		if err := p.Err(); err != nil {
			c.t.Errorf("a process ended with %v:\n%s", err, p.Log)
		}
	}
}

// enough plays everything that needs a right with the deployed roles, and compares the audit log with the rights: every request
// must be allowed, and every right must be used.
func enough(t *testing.T, s *stage) {
	m := s.apply(t, append(features, ".", "api", "people")...)
	c := newCast(t, s)
	c.perform()
	c.end()
	c.audited(m, "rehome-watcher")
	c.audited(m, "rehome-actuator")
	c.audited(m, "rehome-maintenance")
	c.audited(m, "rehome-api")
	c.audited(m, "rehome-setup")
}

// newCast starts an installation with a NATS cluster, and creates its world.
func newCast(t *testing.T, s *stage) *cast {
	t.Helper()
	ctx := t.Context()
	kinds, err := apply.NewClient(s.RESTConfig())
	expect.Must(t, err)
	w, err := s.newWorld(ctx, "world", plain, restarted, surged)
	expect.Must(t, err)
	_, err = s.client.CoreV1().Secrets(namespace).Create(ctx, prometheusToken(), metav1.CreateOptions{})
	expect.Must(t, err)
	servers := bustest.Cluster(t, 3)
	c := &cast{world: w, t: t, kinds: kinds, common: []string{
		"REHOME_NAMESPACE=" + namespace, "REHOME_LEASE_DURATION=3s", "REHOME_NATS_URL=" + servers.URL(), "REHOME_NATS_REPLICAS=3",
	}}
	c.requests = expect.Value(t, program.FreeAddress)
	c.local = expect.Value(t, program.FreeAddress)
	elsewhere := expect.Value(t, program.FreeAddress)
	file, err := w.policy(w.name, restarts, "evictionRequests: {wait: 1s}", "functions: [{name: RemoveFailedPods, http: {url: http://"+elsewhere+"}}]",
		byTaint, byLoad(namespace))
	expect.Must(t, err)

	setup, err := program.Start(s.rehome, []string{"setup", "--policy", file}, append(c.common, c.as("rehome-setup")))
	expect.Must(t, err)
	if err := setup.Err(); err != nil {
		t.Fatalf("rehome setup: %v: %s", err, setup.Log)
	}
	served := c.serve(elsewhere)
	c.start(nowhere, []string{"functions"})
	c.start(nowhere, []string{"dispatcher", "--policy", file})
	c.start(c.as("rehome-watcher"), []string{"watcher", "--policy", file})
	c.start(c.as("rehome-api"), []string{"api", "--policy", file}, "REHOME_API_ADDRESS="+c.requests, "REHOME_API_LOCAL="+c.local)
	c.start(c.as("rehome-actuator"), []string{"actuator", "--policy", file})
	c.start(c.as("rehome-maintenance"), []string{"maintenance", "--policy", file})
	c.running = append(c.running, served)
	return c
}

// serve starts a strategy as a function at an address.
func (c *cast) serve(address string) *program.Program {
	c.t.Helper()
	p, err := program.Start(c.rehome, []string{"serve", "RemoveFailedPods", "--address", address}, append(c.common, nowhere))
	expect.Must(c.t, err)
	c.t.Cleanup(p.Kill)
	expect.Must(c.t, until(c.t.Context(), "the function is served", func() (bool, string) {
		return strings.Contains(p.Log.String(), "serving"), p.Log.String()
	}))
	return p
}

func prometheusToken() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-token"}, StringData: map[string]string{"prometheusAuthToken": "secret"},
	}
}

// perform has everything done, and checks that it was.
func (c *cast) perform() {
	t, ctx := c.t, c.t.Context()
	t.Helper()
	expect.Must(t, c.taint(ctx))
	expect.Must(t, c.emptied(ctx))
	for _, name := range []string{"plain", "restarted", "surged"} {
		expect.Must(t, c.WaitReady(ctx, c.name, name))
	}
	c.failed()
	c.requested()
	expect.Must(t, c.uses(ctx))
	expect.Must(t, until(ctx, "the watcher reads the usage of pods", c.measures)) // before the maintenance cordons a node
	expect.Must(t, until(ctx, "the API simulates a policy with the metrics API", func() (bool, string) {
		status, text := c.simulated(ctx, c.local)
		return status == http.StatusOK, fmt.Sprint(status, " ", text)
	}))
	c.maintained()
}

// measures reports whether the audit log has a request of the watcher for the usage of pods.
func (c *cast) measures() (bool, string) {
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		return false, err.Error()
	}
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte("/apis/metrics.k8s.io/v1beta1/pods")) && bytes.Contains(line, []byte(":rehome-watcher")) {
			return true, ""
		}
	}
	return false, "no such request"
}

// failed has a pod fail, and waits until it is removed.
func (c *cast) failed() {
	t, ctx := c.t, c.t.Context()
	t.Helper()
	pods, err := c.client.CoreV1().Pods(c.name).List(ctx, metav1.ListOptions{LabelSelector: "app=plain"})
	expect.Must(t, err)
	name := pods.Items[0].Name
	expect.Must(t, c.patchPod(ctx, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, cluster.HoldAnnotation)))
	expect.Must(t, c.patchPod(ctx, name, `{"status":{"phase":"Failed","reason":"OutOfcpu"}}`, "status"))
	soon, cancel := context.WithTimeout(ctx, expect.Patience)
	defer cancel()
	_, err = c.WaitPods(soon, c.name, "app=plain", name+" is gone", func(pods []*corev1.Pod) bool {
		return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Name == name })
	})
	expect.Must(t, err)
	expect.Must(t, c.WaitReady(ctx, c.name, "plain"))
}

// requested sends HTTP requests to move a pod, with and without the right.
func (c *cast) requested() {
	t, ctx := c.t, c.t.Context()
	t.Helper()
	for _, name := range []string{"asker", "bystander"} {
		_, err := c.client.CoreV1().ServiceAccounts(c.name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		expect.Must(t, err)
	}
	expect.Must(t, c.Bind(ctx, cluster.AccountSubject(c.name, "asker"), c.name, "rehome-requester"))
	// The pod of a Deployment whose other node has a taint: it comes back to where it was, but it is moved.
	body, err := c.asked(ctx, "plain", "one")
	expect.Must(t, err)
	expect.Must(t, until(ctx, "the state has the leaders", func() (bool, string) {
		text := state(ctx, c.local)
		return strings.Contains(text, `"holder":"`), text
	}))
	for account, want := range map[string]int{"bystander": http.StatusForbidden, "asker": http.StatusAccepted} {
		token, err := c.token(ctx, c.name, account)
		expect.Must(t, err)
		expect.Must(t, until(ctx, account+" is answered", func() (bool, string) {
			status, text := ask(ctx, c.requests, token, body)
			return status == want, fmt.Sprint(status, " ", text)
		}))
	}
}

// state returns the state of an API, or why there is none.
func state(ctx context.Context, address string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/state", nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// ask posts a request.
func ask(ctx context.Context, address, token string, body []byte) (status int, text string) {
	return post(ctx, "http://"+address+"/v1/requests", token, "application/cloudevents+json", body)
}

// post posts a body of a type, with a token or none.
func post(ctx context.Context, url, token, media string, body []byte) (status int, text string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", media)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(answer)
}

// maintained has the second node drained and given back by a maintenance.
func (c *cast) maintained() {
	t, ctx := c.t, c.t.Context()
	t.Helper()
	expect.Must(t, c.PatchNode(ctx, c.nodes[0], `{"spec":{"taints":null}}`))
	expect.Must(t, c.maintain(ctx, c.kinds, c.nodes[1]))
	left := obstacles()
	expect.Must(t, until(ctx, "nothing is in the way of the maintenance", func() (bool, string) {
		status := c.clear(ctx, c.kinds, &left)
		return len(left) == 0, status
	}))
	expect.Must(t, c.reaches(ctx, c.kinds, "Drained"))
	expect.Must(t, c.complete(ctx, c.kinds))
}

// obstacles are the changes that let the maintenance of [world.maintain] begin: it is refused twice, and then waits for
// Prometheus.
func obstacles() []string {
	return []string{`{"window":{"end":"2021-01-01T00:00:00Z"}}`, `{"window":null}`, `{"gates":null}`}
}

// clear takes the next obstacle away as soon as the status says that it is in the way, and returns the status.
func (w *world) clear(ctx context.Context, kinds rest.Interface, left *[]string) (status string) {
	at := func(r *rest.Request) *rest.Request { return r.Resource(v1alpha1.NodeMaintenances).Name(w.name) }
	var m v1alpha1.NodeMaintenance
	if err := at(kinds.Get()).Do(ctx).Into(&m); err != nil {
		return err.Error()
	}
	text, err := json.Marshal(m.Status)
	if err != nil {
		return err.Error()
	}
	met := m.Status.ObservedGeneration == m.Generation && (len(*left) > 1 || bytes.Contains(text, []byte("Prometheus cannot")))
	if len(*left) > 0 && met {
		err := at(kinds.Patch(types.MergePatchType)).Body([]byte(`{"spec":` + (*left)[0] + `}`)).Do(ctx).Error()
		if err != nil {
			return err.Error()
		}
		*left = (*left)[1:]
	}
	return string(text)
}

// maintain creates a maintenance of a node, with the name of the world and with [obstacles].
func (w *world) maintain(ctx context.Context, kinds rest.Interface, node string) error {
	return kinds.Post().Resource(v1alpha1.NodeMaintenances).Body(fmt.Appendf(nil,
		`{"apiVersion":"rehome.dev/v1alpha1","kind":"NodeMaintenance","metadata":{"name":%q},`+
			`"spec":{"nodes":{"names":[%q]},"stage":"Drain","reason":"a test","window":{"end":"2020-01-01T00:00:00Z"},`+
			`"gates":[{"name":"load","query":"up"}]}}`, w.name, node)).Do(ctx).Error()
}

// reaches waits until the node of the maintenance is in a stage.
func (w *world) reaches(ctx context.Context, kinds rest.Interface, stage v1alpha1.NodeStage) error {
	return until(ctx, "the node is "+string(stage), func() (bool, string) {
		var m v1alpha1.NodeMaintenance
		if err := kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(w.name).Do(ctx).Into(&m); err != nil {
			return false, err.Error()
		}
		return len(m.Status.Nodes) == 1 && m.Status.Nodes[0].Stage == stage, fmt.Sprintf("%+v", m.Status)
	})
}

// complete completes the maintenance, deletes it, and waits until it is gone and the node is back.
func (w *world) complete(ctx context.Context, kinds rest.Interface) error {
	at := func(r *rest.Request) *rest.Request { return r.Resource(v1alpha1.NodeMaintenances).Name(w.name) }
	err := at(kinds.Patch(types.MergePatchType)).Body([]byte(`{"spec":{"stage":"Complete"}}`)).Do(ctx).Error()
	if err != nil {
		return err
	}
	if err := at(kinds.Delete()).Do(ctx).Error(); err != nil {
		return err
	}
	return until(ctx, "the maintenance is gone and its node is back", func() (bool, string) {
		gone := at(kinds.Get()).Do(ctx).Error()
		node, err := w.client.CoreV1().Nodes().Get(ctx, w.nodes[1], metav1.GetOptions{})
		return gone != nil && err == nil && !node.Spec.Unschedulable, fmt.Sprint(gone, err)
	})
}

// once runs `rehome once` as the account of all roles, to its end.
func (c *cast) once(file string) {
	c.t.Helper()
	p, err := program.Start(c.rehome, []string{"once", "--policy", file}, append(c.common, c.as("rehome")))
	expect.Must(c.t, err)
	c.t.Cleanup(p.Kill)
	if err := p.Err(); err != nil {
		c.t.Errorf("rehome once: %v:\n%s", err, p.Log)
	}
}

// did returns the allowed and the forbidden requests of an account in the audit log, as rights of the list where possible.
func (c *cast) did(account string, may []right) (did, forbidden []right) {
	c.t.Helper()
	entries, err := c.Audit(c.t.Context())
	expect.Must(c.t, err)
	for _, e := range entries {
		if e.User != "system:serviceaccount:"+namespace+":"+account || e.Resource == "" {
			continue
		}
		r := right{Group: e.Group, Resource: e.Resource, Verb: e.Verb, Name: e.Name}
		if e.Subresource != "" {
			r.Resource += "/" + e.Subresource
		}
		if i := slices.IndexFunc(may, func(m right) bool {
			return m.Group == r.Group && m.Resource == r.Resource && m.Verb == r.Verb && (m.Name == "" || m.Name == r.Name)
		}); i >= 0 {
			r = may[i]
		}
		if e.Code == http.StatusForbidden {
			forbidden = append(forbidden, r)
		} else if e.Code < http.StatusMultipleChoices {
			did = append(did, r)
		}
	}
	return sorted(did), sorted(forbidden)
}

// audited checks that an account did all that it may, and tried nothing that it may not.
func (c *cast) audited(m manifests, account string) {
	c.t.Helper()
	may := m.of(account)
	did, forbidden := c.did(account, may)
	if !slices.Equal(did, may) {
		for _, r := range may {
			if !slices.Contains(did, r) {
				c.t.Errorf("%s may %s and never did", account, r)
			}
		}
		c.t.Errorf("%s did\n%v\nand may\n%v", account, did, may)
	}
	if len(forbidden) > 0 {
		c.t.Errorf("%s was forbidden to %v", account, forbidden)
	}
	if !c.t.Failed() {
		c.t.Logf("%s used each of its %d rights", account, len(may))
	}
}

// forbiddenNothing checks that an account tried nothing that it may not.
func (c *cast) forbiddenNothing(account string) {
	c.t.Helper()
	did, forbidden := c.did(account, nil)
	if len(did) == 0 || len(forbidden) > 0 {
		c.t.Errorf("%s did %d kinds of things and was forbidden to %v", account, len(did), forbidden)
	}
}
