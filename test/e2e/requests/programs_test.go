package requests

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// startExample starts an example program. The end of the scene kills it.
func startExample(s *scene.Scene, e program.Example, environment []string, arguments ...string) *scene.Process {
	s.T.Helper()
	running, err := e.Start(environment, arguments...)
	s.T.Must(err)
	programtest.End(s.T, running, fmt.Sprintf("%v %q", e.Arguments, arguments))
	return &scene.Process{Program: running, T: s.T}
}

// addAccount creates a service account, and returns its token.
func addAccount(s *scene.Scene, name string) (token string) {
	s.T.Helper()
	ctx, accounts := s.T.Context(), s.Client.CoreV1().ServiceAccounts(s.Namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.T.Must(err)
	got, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.T.Must(err)
	return got.Status.Token
}

// allowRequests lets a service account make requests for the namespace of the scene.
func allowRequests(s *scene.Scene, account string) {
	s.T.Helper()
	s.T.Must(s.Cluster.Grant(s.T.Context(), cluster.AccountSubject(s.Namespace, account), s.Namespace,
		rbacv1.PolicyRule{APIGroups: []string{"rehome.dev"}, Resources: []string{"requests"}, Verbs: []string{"create"}}))
}

// listenerLine is a line of the listener's output.
type listenerLine struct{ What, Outcome, Reason, Pod, Strategy, Why, State, Message string }

func listenerLines(p *scene.Process) (lines []listenerLine) {
	p.T.Helper()
	for line := range strings.Lines(p.Log.String()) {
		var h listenerLine
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &h) == nil {
			lines = append(lines, h)
		}
	}
	return lines
}

// TestDocumentedPrograms runs programs that receive verdicts, send a request, and implement
// strategies that lead to real evictions. The programs are the examples of the documentation. They use no code of Rehome, except
// that the one in Go uses the packages of the contract.
func TestDocumentedPrograms(t *testing.T) {
	s := scene.New(t, 4)
	annotated := func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{"example.com/avoid-zone": "red-" + s.Namespace}
	}
	s.AddDeployment("api", 2, scene.PreferNode(s.Nodes[0]), annotated)
	s.AddDeployment("near", 1, scene.PreferNode(s.Nodes[0]))
	s.AddDeployment("web", 2, scene.PreferNode(s.Nodes[1]))
	s.AddDeployment("cart", 1, scene.PreferNode(s.Nodes[2]))
	retiring, err := program.GoExample("retiring")
	s.T.Must(err)
	avoid, err := program.PythonExample("avoidzone/avoid_zone.py")
	s.T.Must(err)
	listener, err := program.PythonExample("listener/listener.py")
	s.T.Must(err)

	free, err := program.FreeAddresses(4)
	s.T.Must(err)
	avoids, retires, listens, asks := free[0], free[1], free[2], free[3]
	startExample(s, avoid, []string{"ADDRESS=" + avoids}).WaitLog("serving")
	startExample(s, retiring, []string{"ADDRESS=" + retires}).WaitLog("serving")
	dir := filetest.ShortDir(t)
	s.StartRun(s.ProfilesPolicy([]string{`  - name: default
    pluginConfig: [{name: AvoidZone}, {name: LeaveRetiringNodes, args: {days: 2}}]
    plugins: {deschedule: {enabled: [AvoidZone, LeaveRetiringNodes]}}`},
		"functions:",
		"- {name: AvoidZone, scope: node, wakes: [node.labels], http: {url: http://"+avoids+"/}}",
		"- {name: LeaveRetiringNodes, scope: node, wakes: [node.labels], args: {days: 0}, http: {url: http://"+retires+"/}}",
	), dir, "REHOME_API_ADDRESS="+asks)
	s.Start([]string{"forward", "--to", "http://" + listens + "/", "--type", "verdict"}, "REHOME_STORE_DIR="+dir).WaitLog("forwarding")
	hears := startExample(s, listener, nil, "--listen", listens)
	hears.WaitLog("listening")

	// Strategies in two languages: pods leave an unwanted zone, and a node that will be removed tomorrow.
	moving := s.PodsOn(s.Nodes[0])
	maps.DeleteFunc(moving, func(_ types.UID, name string) bool { return strings.HasPrefix(name, "near-") })
	maps.Copy(moving, s.PodsOn(s.Nodes[1]))
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	want := map[listenerLine]bool{}
	for _, name := range moving {
		h := listenerLine{
			What: "verdict", Outcome: "evicted", Reason: "EvictionAccepted", Pod: s.Namespace + "/" + name,
			Strategy: "AvoidZone", Why: "avoids the zone red-" + s.Namespace,
		}
		if strings.HasPrefix(name, "web-") {
			h.Strategy, h.Why = "LeaveRetiringNodes", "its node is taken away on "+tomorrow
		}
		want[h] = true
	}
	for _, n := range s.Nodes[:2] { // before the first pod moves, so that its replacement does not move again
		s.Cordon(n, true)
	}
	s.LabelNode(s.Nodes[0], corev1.LabelTopologyZone, "red-"+s.Namespace)
	s.LabelNode(s.Nodes[1], "example.com/retiring", tomorrow)
	s.WaitEmpty(s.Nodes[1])
	s.CheckEvictedOnce(moving)
	got := map[listenerLine]bool{}
	expect.EventuallyWithState(t, "the listener has the verdicts", func() (bool, string) {
		for _, h := range listenerLines(hears) {
			if h.Outcome == "evicted" {
				got[h] = true
			}
		}
		return len(got) >= len(want), fmt.Sprint(got)
	})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it heard\n%+v, want\n%+v", got, want)
	}
	hears.Kill()

	// The program requests the move of a pod, and receives the result.
	cart := s.PodsOn(s.Nodes[2])
	maps.DeleteFunc(cart, func(_ types.UID, name string) bool { return !strings.HasPrefix(name, "cart-") })
	s.Cordon(s.Nodes[2], true) // so the pod does not return
	token := filetest.New(s.T, "token", addAccount(s, "asker")+"\n")
	allowRequests(s, "asker")
	for _, name := range cart {
		asker := startExample(s, listener, nil, "--listen", listens, "--ask", "http://"+asks+"/v1/requests", "--token-file", token,
			"--pod", s.Namespace+"/"+name, "--reason", "it hangs")
		if code := asker.Exit(); code != 0 {
			t.Errorf("it ended with %d", code)
		}
		why := " asked for by http for system:serviceaccount:" + s.Namespace + ":asker: it hangs"
		var outcomes []string
		for _, h := range listenerLines(asker) {
			outcome := h.What + " " + h.State + h.Outcome + " " + h.Why
			switch {
			case h.What == "receipt" && (h.State == "accepted" || h.State == "finished"): // the pod may be gone before the program reads it
				outcomes = append(outcomes, "receipt")
			case outcome == "verdict evicted"+why: // forwarded events have no order, and the program may end before this one comes
			case h.What == "receipt", h.Pod == s.Namespace+"/"+name:
				outcomes = append(outcomes, outcome)
			}
		}
		if want := []string{"receipt", "verdict settled" + why}; !reflect.DeepEqual(outcomes, want) {
			t.Errorf("it heard %q, want %q", outcomes, want)
		}
	}
	maps.Copy(moving, cart)
	s.CheckEvictedOnce(moving)
}
