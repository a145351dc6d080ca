package rbac

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/nats-io/nats-server/v2/server"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// atOnce is how many processes that lack a right run at once: they wait more than they compute.
const atOnce = 6

// lacking is a process whose account lacks one right. It has the other rights of its roles, and of the feature that the right is
// for.
type lacking struct {
	*removal
	role    string
	feature string // a folder. Empty: the right is for no feature
	right   right
	place   string // a namespace with its account, lease, and objects
	scene   scene
}

// scene runs the process and makes it use the right. said reports whether the output has a text.
type scene func(ctx context.Context, l lacking, said func(text string) bool) error

// removal is what all of them share.
type removal struct {
	*stage
	bus   string // the setting that names it
	base  manifests
	of    map[string]manifests // by feature
	kinds rest.Interface
}

// features are the folders that bind rights to the accounts of roles for one feature.
var features = []string{"restart", "eviction-requests", "requests", "metrics-api", "prometheus-token"}

// eachRemoved removes each right in turn, and checks that the process fails without it and reports it.
func eachRemoved(t *testing.T, s *stage) {
	r := newRemoval(t, s)
	beside, alone := r.each()
	failures := make([]string, len(beside)+len(alone))
	var errs sync.Map
	turns := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	try := func(i int, l lacking) {
		failure, err := l.fails(t.Context())
		failures[i] = failure
		if err != nil {
			errs.Store(i, fmt.Errorf("the %s without the right to %s for %q: %w", l.role, l.right, l.feature, err))
		}
	}
	for i, l := range beside {
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			try(i, l)
		})
	}
	running.Wait()
	for i, l := range alone {
		try(len(beside)+i, l)
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for i, l := range slices.Concat(beside, alone) {
		if err, failed := errs.Load(i); failed {
			t.Error(err)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.200s\n", l.role, l.feature, l.right, failures[i])
	}
	table.Flush()
	t.Logf("what failed without each of %d rights:\n%s", len(failures), text.String())
}

func newRemoval(t *testing.T, s *stage) *removal {
	t.Helper()
	ctx := t.Context()
	r := &removal{stage: s, base: s.apply(t, "watcher", "actuator", "maintenance", "api"), of: map[string]manifests{}}
	for _, feature := range features {
		r.of[feature] = s.apply(t, feature)
	}
	var err error
	r.kinds, err = apply.NewClient(s.RESTConfig())
	expect.Must(t, err)
	w, err := s.newWorld(ctx, "load")
	expect.Must(t, err)
	expect.Must(t, w.uses(ctx))
	server := bustest.Serve(t, &server.Options{})
	bustest.SetUp(t, bustest.Connect(t, bus.Options{URL: server.ClientURL()}), bus.Setup{Strategies: functions.Names(functions.All())})
	r.bus = "REHOME_NATS_URL=" + server.ClientURL()
	return r
}

// each returns the processes that can run in parallel, and the processes that would affect each other's maintenances.
func (r *removal) each() (beside, alone []lacking) {
	for _, role := range []string{"watcher", "actuator", "maintenance", "api"} {
		for _, feature := range append([]string{""}, features...) {
			of := r.base
			if feature != "" {
				of = r.of[feature]
			}
			for _, right := range of.of("rehome-" + role) {
				l := lacking{r, role, feature, right, "", nil}
				l.scene = l.sceneOf()
				if role == "maintenance" && !l.follows() {
					l.place = fmt.Sprintf("alone-%d", len(alone))
					alone = append(alone, l)
				} else {
					l.place = fmt.Sprintf("beside-%d", len(beside))
					beside = append(beside, l)
				}
			}
		}
	}
	return beside, alone
}

// follows reports whether the role needs the right even if there is nothing to do.
func (l lacking) follows() bool {
	return l.feature == "" && (l.role != "api" || l.right.Resource != "leases") && (l.right.Verb == "list" || l.right.Verb == "watch" || l.right.Resource == "leases")
}

// sceneOf returns the scene where the process uses the right.
func (l lacking) sceneOf() scene {
	switch r := l.right; {
	case l.follows():
		return following
	case l.role == "watcher":
		return watching
	case l.role == "api":
		return serving
	case l.role == "maintenance":
		return maintaining
	case l.feature == "eviction-requests":
		return moving(plain, "evictionRequests: {wait: 1s}")
	case r.Resource == "horizontalpodautoscalers":
		return movingAnyway(surged)
	case r.Resource == "pods" && r.Verb == "get" && l.feature == "":
		return moving(budgeted)
	case r.Resource == "pods" && r.Verb == "patch":
		return moving(surged, restarts)
	case l.feature == "restart":
		return movingAnyway(restarted)
	}
	return moving(plain)
}

// fails deprives an account of the right, and waits until the process says that it lacks it. It returns what it says.
func (l lacking) fails(ctx context.Context) (failure string, err error) {
	if err := l.AddNamespace(ctx, l.place); err != nil {
		return "", err
	}
	err = l.scene(ctx, l, func(text string) bool {
		for line := range strings.Lines(strings.ReplaceAll(text, `\`, "")) {
			if strings.Contains(line, l.right.missing()) {
				failure = strings.TrimSpace(line)
				return true
			}
		}
		return false
	})
	return failure, err
}

// deprive creates the account of the process, without the right, and returns its kubeconfig.
func (l lacking) deprive(ctx context.Context, accounts ...string) (kubeconfig string, err error) {
	var rights []right
	for _, account := range accounts {
		rights = append(rights, l.base.of(account)...)
		if l.feature != "" {
			rights = append(rights, l.of[l.feature].of(account)...)
		}
	}
	rights = slices.DeleteFunc(sorted(rights), func(r right) bool { return r == l.right })
	account := cluster.AccountSubject(l.place, l.place)
	_, err1 := l.client.CoreV1().ServiceAccounts(l.place).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: l.place}}, metav1.CreateOptions{})
	err2 := l.Grant(ctx, account, "", rules(rights, false)...)
	err3 := l.Grant(ctx, account, l.place, rules(rights, true)...)
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	if err := l.inForce(ctx, rights); err != nil {
		return "", err
	}
	return l.kubeconfig(ctx, l.place, l.place)
}

// inForce waits until the API server goes by the rights: a moment before that, others are missing too.
func (l lacking) inForce(ctx context.Context, rights []right) error {
	for _, local := range []bool{false, true} {
		i := slices.IndexFunc(rights, func(r right) bool { return r.Local == local && !strings.Contains(r.Resource, "/") })
		err := until(ctx, "the rights are in force", func() (bool, string) {
			may, err := l.may(ctx, rights[i])
			return may, fmt.Sprint(rights[i], " ", err)
		})
		if err != nil {
			return err
		}
	}
	if may, err := l.may(ctx, l.right); may || err != nil {
		return fmt.Errorf("it may still %s (%w)", l.right, err)
	}
	return nil
}

// may asks the API server whether the account has a right.
func (l lacking) may(ctx context.Context, r right) (bool, error) {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	attributes := authorizationv1.ResourceAttributes{
		Group: r.Group, Resource: resource, Subresource: subresource, Verb: r.Verb, Name: r.Name,
	}
	if r.Local {
		attributes.Namespace = l.place
	}
	review, err := l.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + l.place + ":" + l.place, ResourceAttributes: &attributes,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// run runs a process until it reports the missing right. also is another text to wait for, or nil.
func (l lacking) run(
	ctx context.Context, said func(string) bool, also func() string, arguments []string, environment ...string,
) error {
	p, err := program.Start(l.rehome, arguments, append(environment, "REHOME_LEASE_NAMESPACE="+l.place, "REHOME_LEASE_DURATION=3s",
		"REHOME_CLUSTER="+l.place))
	if err != nil {
		return err
	}
	defer p.Kill()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Ended:
			cancel(fmt.Errorf("it ended: %w: %s", p.Err(), p.Log))
		case <-ctx.Done():
		}
	}()
	return until(ctx, "a report of the missing right", func() (bool, string) {
		_, body := p.Get("readyz")
		text := "/readyz: " + body
		if !l.fillsCaches() {
			text += p.Log.String()
		}
		if also != nil {
			text += also()
		}
		return said(text), text
	})
}

// fillsCaches reports whether the caches need the right, so /readyz must report it.
func (l lacking) fillsCaches() bool {
	once := []string{"leases", "horizontalpodautoscalers", "evictions"} // listed when they are needed
	return l.right.Verb == "list" && l.right.Group != "metrics.k8s.io" && !slices.Contains(once, l.right.Resource)
}

// watching is the watcher by itself, with all of its features.
func watching(ctx context.Context, l lacking, said func(string) bool) error {
	kubeconfig, err := l.deprive(ctx, "rehome-watcher")
	if err != nil {
		return err
	}
	if _, err := l.client.CoreV1().Secrets(l.place).Create(ctx, prometheusToken(), metav1.CreateOptions{}); err != nil {
		return err
	}
	w := world{stage: l.stage, name: "load"}
	file, err := w.policy(l.place, "profiles:", byLoad(l.place))
	if err != nil {
		return err
	}
	return l.run(ctx, said, nil, []string{"watcher", "--policy", file}, kubeconfig, l.bus)
}

// serving is the API by itself, which is asked for the state, for a move, and for a simulation.
func serving(ctx context.Context, l lacking, said func(string) bool) error {
	kubeconfig, err := l.deprive(ctx, "rehome-api")
	if err != nil {
		return err
	}
	w := world{stage: l.stage, name: "load"}
	file, err := w.policy(l.place, byTaint)
	if err != nil {
		return err
	}
	address, err := program.FreeAddress()
	if err != nil {
		return err
	}
	local, err := program.FreeAddress()
	if err != nil {
		return err
	}
	token, err := l.token(ctx, l.place, "default")
	if err != nil {
		return err
	}
	asking := func() string {
		_, text := ask(ctx, address, token, []byte(request))
		_, moves := w.simulated(ctx, local)
		return "answer: " + text + "\nstate: " + state(ctx, local) + "\nsimulation: " + moves + "\n"
	}
	return l.run(ctx, said, asking, []string{"api", "--policy", file}, kubeconfig, l.bus, "REHOME_API_ADDRESS="+address, "REHOME_API_LOCAL="+local)
}

// request is a request without permission.
const request = `{"specversion":"1.0","type":"dev.rehome.request.v1","id":"one","source":"/test","datacontenttype":"application/json",
"data":{"action":"evaluate","reason":"a test"}}`

// following is the role by itself, with nothing to do.
func following(ctx context.Context, l lacking, said func(string) bool) error {
	kubeconfig, err := l.deprive(ctx, "rehome-"+l.role)
	if err != nil {
		return err
	}
	w := world{stage: l.stage, name: "load"}
	file, err := w.policy(l.place, byTaint)
	if err != nil {
		return err
	}
	return l.run(ctx, said, nil, []string{l.role, "--policy", file}, kubeconfig, l.bus)
}

// moving is all roles in one process, which moves the pods of a part off a node.
func moving(what part, more ...string) scene {
	return func(ctx context.Context, l lacking, said func(string) bool) error {
		w, err := l.newWorld(ctx, l.place, what)
		if err == nil {
			err = w.taint(ctx)
		}
		if err != nil {
			return err
		}
		return l.together(ctx, w, said, more...)
	}
}

// movingAnyway is the same without a right for restarts: the pods are evicted instead.
func movingAnyway(what part) scene {
	return func(ctx context.Context, l lacking, said func(string) bool) error {
		w, err := l.newWorld(ctx, l.place, what)
		if err == nil {
			err = w.taint(ctx)
		}
		if err != nil {
			return err
		}
		return l.together(ctx, w, func(text string) bool {
			pods, err := w.client.CoreV1().Pods(w.name).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + w.nodes[0]})
			return said(text) && err == nil && len(pods.Items) == 0
		}, restarts)
	}
}

// together runs all roles in one process, for the nodes of a world.
func (l lacking) together(ctx context.Context, w *world, said func(string) bool, more ...string) error {
	kubeconfig, err := l.deprive(ctx, "rehome-watcher", "rehome-actuator", "rehome-maintenance")
	if err != nil {
		return err
	}
	file, err := w.policy(l.place, append(more, byTaint)...)
	if err != nil {
		return err
	}
	return l.run(ctx, said, nil, []string{"run", "--policy", file}, kubeconfig, "REHOME_STORE_DIR="+filepath.Join(l.dir, l.place))
}

// maintaining is the maintenance role by itself, which refuses a maintenance, asks Prometheus, and cordons and drains a node.
func maintaining(ctx context.Context, l lacking, said func(string) bool) error {
	kubeconfig, err := l.deprive(ctx, "rehome-maintenance")
	if err != nil {
		return err
	}
	if _, err := l.client.CoreV1().Secrets(l.place).Create(ctx, prometheusToken(), metav1.CreateOptions{}); err != nil {
		return err
	}
	w, err := l.newWorld(ctx, l.place)
	if err == nil {
		err = w.maintain(ctx, l.kinds, w.nodes[0])
	}
	if err != nil {
		return err
	}
	file, err := w.policy(l.place, "profiles:", byLoad(l.place))
	if err != nil {
		return err
	}
	left := obstacles()
	status := func() string { return "status: " + w.clear(ctx, l.kinds, &left) + "\n" }
	err = l.run(ctx, said, status, []string{"maintenance", "--policy", file}, kubeconfig, l.bus)
	at := func(r *rest.Request) *rest.Request { return r.Resource(v1alpha1.NodeMaintenances).Name(w.name) }
	return errors.Join(err,
		at(l.kinds.Patch(types.MergePatchType)).Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error(),
		at(l.kinds.Delete()).Do(ctx).Error())
}
