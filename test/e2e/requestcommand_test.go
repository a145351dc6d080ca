package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestRequestCommands(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 2, preferring(s.nodes[0]))
	s.deployment("held", 1, on(s.nodes[0]))
	s.budget("keep", "held", 1)
	dir := filetest.ShortDir(t)
	s.rehome(s.enable("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}), dir).says("leading: evaluating everything")
	request := func(arguments ...string) result {
		return s.run(append(arguments, "--reason", "test"), "REHOME_STORE_DIR="+dir)
	}
	moved := uids(nil)
	for _, pod := range s.podsOf("api") {
		moved[pod.UID] = pod.Name
	}

	s.cordon(s.nodes[0], true) // otherwise the scheduler may place them there again
	got := request("move", "deployment", "api", "-n", s.namespace, "--name", "dry", "--dry-run")
	if got.code != 0 || strings.Count(got.stdout, "evicted (dry run)\n") != 2 || len(s.evictions()) != 0 {
		t.Errorf("dry run: %s", got)
	}
	got = request("move", "deployment", "api", "-n", s.namespace, "--name", "move")
	if got.code != 0 || strings.Count(got.stdout, "   Replaced after ") != 2 || !strings.Contains(got.stdout, "\nrequest admin/move finished: Done: ") {
		t.Errorf("%s", got)
	}
	if audit := uids(s.evicted(0, 2)); fmt.Sprint(audit) != fmt.Sprint(moved) {
		t.Errorf("evicted %v, want %v", audit, moved)
	}
	got = request("move", "deployment/held", "-n", s.namespace, "--name", "held", "--deadline", "15s")
	if got.code != 1 || !strings.Contains(got.stdout, "remains: deferred: DisruptionBudget: ") ||
		got.stderr != "1 pod of request admin/held did not move as requested\n" {
		t.Errorf("%s", got)
	}
	if got = request("move", "pod", "nobody", "-n", s.namespace, "--name", "nobody"); got.code != 1 {
		t.Errorf("%s", got)
	}
	if got = request("evaluate"); got.code != 0 {
		t.Errorf("%s", got)
	}
}

func TestServiceAccountRequestsOverHTTP(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 1)
	address := expect.Value(s.t, program.FreeAddress)
	s.rehome(s.policy(), filetest.ShortDir(t), "REHOME_API_ADDRESS="+address).evaluated(s)
	token := s.account("asker")
	pod := s.podsOf("api")[0]
	e := schematest.Event(s.t, "/test", schemas.Request{
		Name: "mine", Action: schemas.ActionDeschedule, Reason: "it hangs",
		Target: &schemas.Target{Pods: []schemas.PodTarget{{Namespace: s.namespace, Name: pod.Name, UID: pod.UID}}},
	}, pod.CreationTimestamp.Time, schemas.Event{})
	body, err := cloudevent.WriteStructured(e)
	s.t.Must(err)
	post := func(token string) (status int, text string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/requests", strings.NewReader(string(body)))
		s.t.Must(err)
		q.Header.Set("Content-Type", cloudevent.StructuredJSON)
		q.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(q)
		s.t.Must(err)
		defer got.Body.Close()
		all, err := io.ReadAll(got.Body)
		s.t.Must(err)
		return got.StatusCode, string(all)
	}
	if status, text := post("stranger"); status != http.StatusUnauthorized {
		t.Errorf("a forged token: %d %s", status, text)
	}
	account := "system:serviceaccount:" + s.namespace + ":asker"
	want := "user " + account + " may not create requests.rehome.dev in namespace " + s.namespace
	if status, text := post(token); status != http.StatusForbidden || !strings.Contains(text, `"detail":"`+want+`"`) {
		t.Errorf("without the right: %d %s, want %s", status, text, want)
	}

	s.mayRequest("asker")
	var text string
	expect.EventuallyWithState(t, "the right is there, and the request taken", func() (bool, string) { // the authorizer of the API server needs a moment to notice
		var status int
		status, text = post(token)
		return status == http.StatusAccepted, text
	})
	got, err := cloudevent.ReadStructured([]byte(text))
	s.t.Must(err)
	receipt := schematest.Decode[schemas.Receipt](s.t, got)
	if receipt.State != schemas.RequestAccepted || len(receipt.Pods) != 1 || receipt.Pods[0].Pod.UID != pod.UID {
		t.Errorf("got the receipt %+v", receipt)
	}
	if audit := s.evicted(0, 1); audit[0].uid != pod.UID {
		t.Errorf("evicted %+v, want %s", audit, pod.UID)
	}
	s.running("app=api", 1)
}
