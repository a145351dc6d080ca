package page

import (
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats-server/v2/server"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/bustest"
	control "github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/expect"
)

// networkPage is the page at a network address, with TLS, for a user who may get the pods of the namespace shop.
type networkPage struct {
	*browser
	cluster *control.Cluster
	bus     *server.Server
	restart func()
}

const shopper, shopperToken = "shopper", "shopper-token"

func TestNetworkPage(t *testing.T) {
	options := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, StoreDir: t.TempDir()}
	n := &networkPage{browser: newBrowser(t), bus: bustest.Serve(t, options)}
	options.Port = n.bus.Addr().(*net.TCPAddr).Port
	n.restart = func() { n.bus = bustest.Serve(t, options) }
	n.cluster = clustertest.New(t, control.Options{Users: []control.User{{Name: shopper, Token: shopperToken}}})
	n.fill(t)
	n.show(1360, 820, "light")
	n.Do(chromedp.Navigate(n.serve(t)))
	n.run("window.sameDocument = true")
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"sign_in", n.signIn}, {"other_namespace", n.otherNamespace}, {"missed_events", n.missed}, {"lost_bus", n.lostBus},
	} {
		t.Run(part.name, func(t *testing.T) {
			n.TB = t
			part.run(t)
		})
		n.TB = t
	}
	if !get[bool](n.browser, "window.sameDocument === true") {
		t.Error("the page was loaded again")
	}
	n.NoErrors("the page")
}

// fill adds a node, and two namespaces with two pods each.
func (n *networkPage) fill(t *testing.T) {
	_, err := n.cluster.AddNodes(t.Context(), 1)
	n.Must(err)
	for _, namespace := range []string{"shop", "web"} {
		n.Must(n.cluster.AddNamespace(t.Context(), namespace))
		_, err := n.cluster.AddDeployment(t.Context(), namespace, "api", 2)
		n.Must(err)
		n.Must(n.cluster.WaitReady(t.Context(), namespace, "api"))
	}
	_, err = n.cluster.Client().RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "see-pods"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	n.Must(err)
	n.allow(t, "shop")
}

// allow lets the user see the pods of a namespace.
func (n *networkPage) allow(t *testing.T, namespace string) {
	t.Helper()
	n.Must(n.cluster.Bind(t.Context(), control.UserSubject(shopper), namespace, "see-pods"))
}

// serve returns the network address of a server.
func (n *networkPage) serve(t *testing.T) string {
	b := bustest.Connect(t, bus.Options{Name: "api", URL: n.bus.ClientURL()})
	bustest.SetUp(t, b, bus.Setup{})
	cache, err := cluster.New(cluster.Config{Client: n.cluster.Client(), Kinds: api.Kinds()})
	n.Must(err)
	service, err := api.New(api.Config{
		Client: n.cluster.Client(), Cluster: cache, Bus: b, Policy: func() policy.Policy { return policy.Policy{} }, Log: slog.New(slog.DiscardHandler),
	})
	n.Must(err)
	stop := expect.Background(t, cache.Run, service.Run)
	web := httptest.NewUnstartedServer(service.Network())
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		stop()
	})
	return web.URL + "/"
}

// signIn enters a token that the API server does not know, and then another one.
func (n *networkPage) signIn(t *testing.T) {
	n.until("the dialog is open", "document.getElementById('sign-in').open && document.activeElement === document.getElementById('token')")
	n.accessible(t)
	for token, until := range []string{
		"document.getElementById('sign-in').open && document.getElementById('sign-in-error').innerText === 'the API server does not know the token'",
		"!document.getElementById('sign-in').open && rehome.model.ready",
	} {
		n.run(fmt.Sprintf("document.getElementById('token').value = %q", []string{"wrong", shopperToken}[token]))
		n.click("#sign-in button[type=submit]")
		n.until("the answer to the token", until)
	}
	n.has("#connection", "Live")
	if got, want := n.namespaces(), "map[shop:2]"; got != want {
		t.Errorf("the page has the pods %s, want %s", got, want)
	}
}

// namespaces counts the pods of each namespace that the page knows.
func (n *networkPage) namespaces() string {
	return fmt.Sprint(get[map[string]int](n.browser, `[...rehome.model.pods.values()].reduce((all, p) => ({...all, [p.namespace]: (all[p.namespace] || 0) + 1}), {})`))
}

func (n *networkPage) otherNamespace(*testing.T) {
	n.view("#/why/pod/web/api")
	n.has("main", "user shopper may not get pods in namespace web")
	n.view("#/cluster")
}

// missed gives the user another namespace: the page says once that it missed changes, and has a fresh state.
func (n *networkPage) missed(t *testing.T) {
	n.run(`window.missed = 0; { const m = rehome.message.bind(rehome); rehome.message = (e, d) => { missed += e === 'missed'; m(e, d); }; }`)
	n.allow(t, "web")
	n.has(".banner", "It shows a fresh state.")
	n.until("the pods of both namespaces", "rehome.model.ready && rehome.model.pods.size === 4")
	if got, want := n.namespaces(), "map[shop:2 web:2]"; got != want {
		t.Errorf("the page has the pods %s, want %s", got, want)
	}
	if got := get[int](n.browser, "missed"); got != 1 {
		t.Errorf("%d marks, want 1", got)
	}
	n.until("the banner is gone", "document.querySelector('.banner') === null")
}

// lostBus stops the bus, and starts it again.
func (n *networkPage) lostBus(t *testing.T) {
	n.bus.Shutdown()
	n.bus.WaitForShutdown()
	n.has(".banner", "the bus is unavailable")
	n.has("#connection", "Live")
	n.restart()
	n.until("the banner is gone", "document.querySelector('.banner') === null")
}
