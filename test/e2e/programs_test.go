package e2e

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
)

// example starts an example program. The end of the scene kills it.
func (s *scene) example(e program.Example, environment []string, arguments ...string) *process {
	s.t.Helper()
	running, err := e.Start(environment, arguments...)
	s.t.Must(err)
	programtest.End(s.t, running, fmt.Sprintf("%v %q", e.Arguments, arguments))
	return &process{running, s.t}
}

// account creates a service account, and returns its token.
func (s *scene) account(name string) (token string) {
	s.t.Helper()
	ctx, accounts := s.t.Context(), s.client.CoreV1().ServiceAccounts(s.namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.t.Must(err)
	got, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.t.Must(err)
	return got.Status.Token
}

// mayRequest lets a service account make requests for the namespace of the scene.
func (s *scene) mayRequest(account string) {
	s.t.Helper()
	s.t.Must(s.cluster.Grant(s.t.Context(), cluster.AccountSubject(s.namespace, account), s.namespace,
		rbacv1.PolicyRule{APIGroups: []string{"rehome.dev"}, Resources: []string{"requests"}, Verbs: []string{"create"}}))
}

// heard is a line of the listener's output.
type heard struct{ What, Outcome, Reason, Pod, Strategy, Why, State, Message string }

func (p *process) heard() (lines []heard) {
	p.t.Helper()
	for line := range strings.Lines(p.Log.String()) {
		var h heard
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
	s := newScene(t, 4)
	annotated := func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{"example.com/avoid-zone": "red-" + s.namespace}
	}
	s.deployment("api", 2, preferring(s.nodes[0]), annotated)
	s.deployment("near", 1, preferring(s.nodes[0]))
	s.deployment("web", 2, preferring(s.nodes[1]))
	s.deployment("cart", 1, preferring(s.nodes[2]))
	retiring, err := program.GoExample("retiring")
	s.t.Must(err)
	avoid, err := program.PythonExample("avoidzone/avoid_zone.py")
	s.t.Must(err)
	listener, err := program.PythonExample("listener/listener.py")
	s.t.Must(err)

	free, err := program.FreeAddresses(4)
	s.t.Must(err)
	avoids, retires, listens, asks := free[0], free[1], free[2], free[3]
	s.example(avoid, []string{"ADDRESS=" + avoids}).says("serving")
	s.example(retiring, []string{"ADDRESS=" + retires}).says("serving")
	dir := filetest.ShortDir(t)
	s.rehome(s.profiles([]string{`  - name: default
    pluginConfig: [{name: AvoidZone}, {name: LeaveRetiringNodes, args: {days: 2}}]
    plugins: {deschedule: {enabled: [AvoidZone, LeaveRetiringNodes]}}`},
		"functions:",
		"- {name: AvoidZone, scope: node, wakes: [node.labels], http: {url: http://"+avoids+"/}}",
		"- {name: LeaveRetiringNodes, scope: node, wakes: [node.labels], args: {days: 0}, http: {url: http://"+retires+"/}}",
	), dir, "REHOME_API_ADDRESS="+asks)
	s.start([]string{"forward", "--to", "http://" + listens + "/", "--type", "verdict"}, "REHOME_STORE_DIR="+dir).says("forwarding")
	hears := s.example(listener, nil, "--listen", listens)
	hears.says("listening")

	// Strategies in two languages: pods leave an unwanted zone, and a node that will be removed tomorrow.
	moving := s.pods(s.nodes[0])
	maps.DeleteFunc(moving, func(_ types.UID, name string) bool { return strings.HasPrefix(name, "near-") })
	maps.Copy(moving, s.pods(s.nodes[1]))
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	want := map[heard]bool{}
	for _, name := range moving {
		h := heard{
			What: "verdict", Outcome: "evicted", Reason: "EvictionAccepted", Pod: s.namespace + "/" + name,
			Strategy: "AvoidZone", Why: "avoids the zone red-" + s.namespace,
		}
		if strings.HasPrefix(name, "web-") {
			h.Strategy, h.Why = "LeaveRetiringNodes", "its node is taken away on "+tomorrow
		}
		want[h] = true
	}
	for _, n := range s.nodes[:2] { // before the first pod moves, so that its replacement does not move again
		s.cordon(n, true)
	}
	s.label(s.nodes[0], corev1.LabelTopologyZone, "red-"+s.namespace)
	s.label(s.nodes[1], "example.com/retiring", tomorrow)
	s.emptied(s.nodes[1])
	s.evictedOnce(moving)
	got := map[heard]bool{}
	expect.EventuallyWithState(t, "the listener has the verdicts", func() (bool, string) {
		for _, h := range hears.heard() {
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
	cart := s.pods(s.nodes[2])
	maps.DeleteFunc(cart, func(_ types.UID, name string) bool { return !strings.HasPrefix(name, "cart-") })
	s.cordon(s.nodes[2], true) // so the pod does not return
	token := filetest.New(s.t, "token", s.account("asker")+"\n")
	s.mayRequest("asker")
	for _, name := range cart {
		asker := s.example(listener, nil, "--listen", listens, "--ask", "http://"+asks+"/v1/requests", "--token-file", token,
			"--pod", s.namespace+"/"+name, "--reason", "it hangs")
		if code := asker.exit(); code != 0 {
			t.Errorf("it ended with %d", code)
		}
		why := " asked for by http for system:serviceaccount:" + s.namespace + ":asker: it hangs"
		var outcomes []string
		for _, h := range asker.heard() {
			outcome := h.What + " " + h.State + h.Outcome + " " + h.Why
			switch {
			case h.What == "receipt" && (h.State == "accepted" || h.State == "finished"): // the pod may be gone before the program reads it
				outcomes = append(outcomes, "receipt")
			case outcome == "verdict evicted"+why: // forwarded events have no order, and the program may end before this one comes
			case h.What == "receipt", h.Pod == s.namespace+"/"+name:
				outcomes = append(outcomes, outcome)
			}
		}
		if want := []string{"receipt", "verdict settled" + why}; !reflect.DeepEqual(outcomes, want) {
			t.Errorf("it heard %q, want %q", outcomes, want)
		}
	}
	maps.Copy(moving, cart)
	s.evictedOnce(moving)
}
