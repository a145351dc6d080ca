package page

import (
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	control "github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// networkPage is the page at a network address, with TLS.
type networkPage struct {
	*browser
	cluster *control.Cluster
	bus     *server.Server
	restart func()
}

// The users: the shopper sees the pods of some namespaces, the watcher all pods, and the owner everything.
const (
	shopper, shopperToken = "shopper", "shopper-token"
	watcher, watcherToken = "watcher", "watcher-token"
	owner, ownerToken     = "owner", "owner-token"
)

func TestNetworkPage(t *testing.T) {
	options := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, StoreDir: t.TempDir()}
	n := &networkPage{browser: newBrowser(t), bus: bustest.Serve(t, options)}
	options.Port = n.bus.Addr().(*net.TCPAddr).Port
	n.restart = func() { n.bus = bustest.Serve(t, options) }
	n.cluster = clustertest.New(t, control.Options{Users: []control.User{
		{Name: shopper, Token: shopperToken}, {Name: watcher, Token: watcherToken},
		{Name: owner, Token: ownerToken, Groups: []string{"system:masters"}},
	}})
	n.fill(t)
	n.show(1360, 820, "light")
	n.Do(chromedp.Navigate(n.serve(t) + "#/why/pod/shop/" + n.pods(t, "shop")[0].Name))
	n.run("window.sameDocument = true")
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"wrong_token", n.wrongToken}, {"sign_in_without_connection", n.signInOffline}, {"link_to_a_pod", n.link},
		{"other_namespace", n.otherNamespace}, {"skip_link", n.skip}, {"missed_events", n.missed},
		{"maintenance_without_nodes", n.withoutNodes}, {"end_of_maintenance", n.endOfMaintenance},
		{"removed_node", n.removedNode}, {"focus_in_second_drain", n.secondDrain},
		{"lost_bus", n.lostBus},
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
	n.Must(n.cluster.Bind(t.Context(), control.UserSubject(watcher), "", "see-pods"))
}

// pods returns the pods of a namespace.
func (n *networkPage) pods(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	list, err := n.cluster.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	n.Must(err)
	return list.Items
}

// allow lets the shopper see the pods of a namespace.
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

// enter enters a token in the dialog.
func (n *networkPage) enter(token string) {
	n.Helper()
	n.run(fmt.Sprintf("document.getElementById('token').value = %q", token))
	n.click("#sign-in button[type=submit]")
}

// change signs in as another user.
func (n *networkPage) change(token string) {
	n.Helper()
	n.run("rehome.signIn(''); rehome.model.ready = false")
	n.enter(token)
	n.until("the page has the cluster", "rehome.model.ready")
}

// wrongToken enters a token that the API server does not know.
func (n *networkPage) wrongToken(t *testing.T) {
	n.until("the dialog is open", "document.getElementById('sign-in').open && document.activeElement === document.getElementById('token')")
	n.accessible(t)
	n.enter("wrong")
	n.until("the answer to the token",
		"document.getElementById('sign-in').open && document.getElementById('sign-in-error').innerText === 'the API server does not know the token'")
}

// signInOffline enters a token while the browser has no connection. The countdown changes, and the live region around it does not.
func (n *networkPage) signInOffline(t *testing.T) {
	n.Do(network.EmulateNetworkConditions(true, 0, -1, -1))
	n.enter(shopperToken)
	n.has(".banner", "No connection to Rehome")
	if got := n.text("#banners button"); got != "Try now" {
		t.Errorf("the banner has the button %q, want Try now", got)
	}
	n.run("window.sentence = document.querySelector('.banner span').firstChild")
	for range 2 {
		n.run("window.countdown = document.querySelector('.banner [role=timer]').textContent")
		n.until("the countdown changes", "document.querySelector('.banner [role=timer]').textContent !== countdown")
	}
	if !get[bool](n.browser, "sentence.isConnected") {
		t.Error("the text of the banner was written again")
	}
	n.Do(network.EmulateNetworkConditions(false, 0, -1, -1))
	n.click("#banners button")
	n.until("the page has the cluster", "!document.getElementById('sign-in').open && rehome.model.ready")
	n.has("#connection", "Live")
	if got, want := n.namespaces(), "map[shop:2]"; got != want {
		t.Errorf("the page has the pods %s, want %s", got, want)
	}
}

// link is the address of a pod, which the page had before it knew the pods and the token.
func (n *networkPage) link(*testing.T) {
	n.has(".explanation", "Running · on node-000", "Nothing happened to this pod")
}

// namespaces counts the pods of each namespace that the page knows.
func (n *networkPage) namespaces() string {
	return fmt.Sprint(get[map[string]int](n.browser, `[...rehome.model.pods.values()].reduce((all, p) => ({...all, [p.namespace]: (all[p.namespace] || 0) + 1}), {})`))
}

func (n *networkPage) otherNamespace(*testing.T) {
	n.view("#/why/pod/web/api")
	n.has("main", "user shopper may not get pods in namespace web")
}

// skip follows the link to the content: the view stays.
func (n *networkPage) skip(t *testing.T) {
	n.run("document.querySelector('.skip').focus()")
	n.key("Enter")
	n.until("the content has the focus", "document.activeElement.id === 'main'")
	if got, want := get[string](n.browser, "location.hash"), "#/why/pod/web/api"; got != want {
		t.Errorf("the page shows %s, want %s", got, want)
	}
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

func (n *networkPage) withoutNodes(*testing.T) {
	n.change(watcherToken)
	n.view("#/maintenance")
	n.has(".maintenance", "You cannot see maintenances")
}

// endOfMaintenance marks a node as in maintenance, and removes the mark.
func (n *networkPage) endOfMaintenance(t *testing.T) {
	n.change(ownerToken)
	for _, step := range []struct{ mark, want string }{{`"{\"name\":\"fan\",\"uid\":\"1\"}"`, "fan"}, {"null", ""}} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, schemas.AnnotationMaintenance, step.mark)
		n.Must(n.cluster.PatchNode(t.Context(), "node-000", patch))
		n.until("the maintenance of the node", fmt.Sprintf("(rehome.model.nodes.get('node-000').maintenance ?? '') === %q", step.want))
	}
}

// removedNode removes a node whose pods remain, adds it again, and removes it with its pods.
func (n *networkPage) removedNode(t *testing.T) {
	n.view("#/cluster")
	n.Must(n.cluster.StopControllers()) // they would delete the pods
	n.run(`window.resets = 0; { const m = rehome.message.bind(rehome); rehome.message = (e, d) => { resets += e === 'reset'; m(e, d); }; }`)
	client := n.cluster.Client().CoreV1()
	node, err := client.Nodes().Get(t.Context(), "node-000", metav1.GetOptions{})
	n.Must(err)
	is := func(what, state string) {
		t.Helper()
		n.until(what, fmt.Sprintf("JSON.stringify([...rehome.model.nodes.values()].map((n) => [n.name, n.ready, Boolean(n.unknown), n.pods])) === '%s'", state))
	}
	is("the node", `[["node-000",true,false,4]]`)
	n.Must(client.Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}))
	is("the node is unknown", `[["node-000",false,true,4]]`)
	replay := `import('/history.js').then(({ Replay }) => {
		const replay = new Replay(rehome.model, [{ id: '1', at: 1, data: { kind: 'node.removed', object: { name: 'node-000' } } }]);
		return [0, 2, 0].map((at) => { replay.seek(at); const n = replay.model.nodes.get('node-000'); return [n.ready, n.unknown, n.pods].join(); });
	})`
	if got, want := get[[]string](n.browser, replay), []string{"true,false,4", "false,true,4", "true,false,4"}; !slices.Equal(got, want) {
		t.Errorf("before, after, and before the node left, the replay has %v, want %v", got, want)
	}
	replay = `import('/history.js').then(({ Replay }) => {
		const at = (at, kind, more) => ({ id: kind, at, data: { kind, object: { name: 'new' }, ...more } });
		const replay = new Replay(rehome.model, [at(1, 'node.added'),
			at(2, 'pod.scheduled', { object: { uid: 'u', namespace: 'shop', name: 'p' }, node: 'new' }), at(3, 'node.removed')]);
		return [0, 2, 4, 2, 0].map((at) => { replay.seek(at); return String(replay.model.nodes.get('new')?.pods); });
	})`
	if got, want := get[[]string](n.browser, replay), []string{"undefined", "1", "undefined", "1", "undefined"}; !slices.Equal(got, want) {
		t.Errorf("a node that came and left, with a pod that left without an event, has %v pods, want %v", got, want)
	}
	_, err = client.Pods("shop").Patch(t.Context(), n.pods(t, "shop")[0].Name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), metav1.PatchOptions{}, "status")
	n.Must(err)
	n.until("a pod is not ready", "[...rehome.model.pods.values()].filter((p) => p.flags & 1).length === 3")
	node.UID, node.ResourceVersion = "", ""
	_, err = client.Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	n.Must(err)
	is("the node is back", `[["node-000",true,false,4]]`)
	n.Must(client.Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}))
	is("the node is unknown again", `[["node-000",false,true,4]]`)
	for _, namespace := range []string{"shop", "web"} {
		for _, p := range n.pods(t, namespace) {
			n.Must(client.Pods(namespace).Delete(t.Context(), p.Name, *metav1.NewDeleteOptions(0)))
		}
	}
	is("the node has left with its last pod", `[]`)
	if got := get[int](n.browser, "resets"); got != 0 {
		t.Errorf("the page connected %d times again, want none", got)
	}
}

// secondDrain has the focus in a card while the cards are made again.
func (n *networkPage) secondDrain(t *testing.T) {
	n.view("#/maintenance")
	n.run(`window.take = (uid, stage) => rehome.maintenance.take({ type: 'dev.rehome.maintenance.v1', time: new Date().toISOString(),
		data: { uid, name: uid, stage: 'Drain', nodes: [{ name: 'node-of-' + uid, stage }] } });
		take('one', 'Draining'); take('two', 'Draining')`)
	n.until("both drains", "document.querySelectorAll('.drain summary').length === 2")
	n.run(`window.summary = document.querySelectorAll('.drain summary')[1]; window.drain = summary.parentElement.id; summary.focus()`)
	n.run(`take('one', 'Drained')`)
	n.until("the cards are made again", "!summary.isConnected")
	if got, want := get[string](n.browser, "document.activeElement.parentElement.id"), get[string](n.browser, "drain"); got != want {
		t.Errorf("the focus is in %s, want %s", got, want)
	}
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
