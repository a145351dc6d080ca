package watcher

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// driven is a watcher whose cached objects a test sets directly.
type driven struct {
	t       *testing.T
	cluster *cluster.Cache
}

// offline returns an empty cache.
func offline(t testing.TB) *cluster.Cache {
	t.Helper()
	c, err := cluster.NewOffline(Kinds()...)
	expect.Must(t, err)
	return c
}

// drive lets a test set the objects in the cache of a watcher.
func drive(t *testing.T, w *Watcher) *driven {
	t.Helper()
	w.addHandlers()
	return &driven{t: t, cluster: w.cluster}
}

// fixture is a cache with objects, a policy, and a builder for both.
type fixture struct {
	cluster *cluster.Cache
	policy  *scope.CompiledPolicy
	scopes  *scope.Builder
}

// newFixture returns a fixture with these objects.
func newFixture(t testing.TB, p *scope.CompiledPolicy, objects ...metav1.Object) fixture {
	t.Helper()
	s := fixture{cluster: offline(t), policy: p}
	put(t, s.cluster, objects...)
	s.scopes = scope.NewBuilder(s.cluster, p)
	s.scopes.Rebuild(time.Now())
	return s
}

// set adds or replaces objects.
func (d *driven) set(objects ...metav1.Object) {
	d.t.Helper()
	put(d.t, d.cluster, objects...)
}

func put(t testing.TB, c *cluster.Cache, objects ...metav1.Object) {
	t.Helper()
	for _, o := range objects {
		expect.Must(t, c.Set(o))
	}
}

func (d *driven) remove(o metav1.Object) {
	d.t.Helper()
	if err := d.cluster.Remove(o); err != nil {
		d.t.Fatal(err)
	}
}

// Objects for tests of capacity.
var (
	amount  = fixtures.Resources
	roomy   = fixtures.Node
	guest   = fixtures.Pod
	asks    = fixtures.Requests
	claims  = fixtures.Claims
	claimed = fixtures.Claim
	disk    = fixtures.Disk
	only    = fixtures.OnlyOn

	ofOwners      = fixtures.OwnedBy
	pdb           = fixtures.Budget
	selecting     = fixtures.Selecting
	namespace     = fixtures.Namespace
	priorityClass = fixtures.PriorityClass
	conditioned   = fixtures.Readiness
)
