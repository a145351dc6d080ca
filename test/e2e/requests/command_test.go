package requests

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
	"github.com/rehome-dev/rehome/test/kit/scene"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestRequestCommands(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 2, scene.PreferNode(s.Nodes[0]))
	s.AddDeployment("held", 1, scene.OnNode(s.Nodes[0]))
	s.AddBudget("keep", "held", 1)
	dir := filetest.ShortDir(t)
	s.StartRun(s.DeschedulePolicy("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}"}), dir).WaitLog("leading: evaluating everything")
	request := func(arguments ...string) scene.Result {
		return s.Run(append(arguments, "--reason", "test"), "REHOME_STORE_DIR="+dir)
	}
	moved := scene.UIDs(nil)
	for _, pod := range s.PodsOf("api") {
		moved[pod.UID] = pod.Name
	}

	s.Cordon(s.Nodes[0], true) // otherwise the scheduler may place them there again
	got := request("move", "deployment", "api", "-n", s.Namespace, "--name", "dry", "--dry-run")
	if got.Code != 0 || strings.Count(got.Stdout, "evicted (dry run)\n") != 2 || len(s.Evictions()) != 0 {
		t.Errorf("dry run: %s", got)
	}
	got = request("move", "deployment", "api", "-n", s.Namespace, "--name", "move")
	if got.Code != 0 || strings.Count(got.Stdout, "   Replaced after ") != 2 || !strings.Contains(got.Stdout, "\nrequest admin/move finished: Done: ") {
		t.Errorf("%s", got)
	}
	if audit := scene.UIDs(s.WaitEvicted(0, 2)); fmt.Sprint(audit) != fmt.Sprint(moved) {
		t.Errorf("evicted %v, want %v", audit, moved)
	}
	got = request("move", "deployment/held", "-n", s.Namespace, "--name", "held", "--deadline", "15s")
	if got.Code != 1 || !strings.Contains(got.Stdout, "remains: deferred: DisruptionBudget: ") ||
		got.Stderr != "1 pod of request admin/held did not move as requested\n" {
		t.Errorf("%s", got)
	}
	if got = request("move", "pod", "nobody", "-n", s.Namespace, "--name", "nobody"); got.Code != 1 {
		t.Errorf("%s", got)
	}
	if got = request("evaluate"); got.Code != 0 {
		t.Errorf("%s", got)
	}
}

func TestServiceAccountRequestsOverHTTP(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 1)
	address := expect.Value(s.T, program.FreeAddress)
	s.StartRun(s.Policy(), filetest.ShortDir(t), "REHOME_API_ADDRESS="+address).WaitEvaluated(s)
	token := addAccount(s, "asker")
	pod := s.PodsOf("api")[0]
	e := schematest.Event(s.T, "/test", schemas.Request{
		Name: "mine", Action: schemas.ActionDeschedule, Reason: "it hangs",
		Target: &schemas.Target{Pods: []schemas.PodTarget{{Namespace: s.Namespace, Name: pod.Name, UID: pod.UID}}},
	}, pod.CreationTimestamp.Time, schemas.Event{})
	body, err := cloudevent.WriteStructured(e)
	s.T.Must(err)
	post := func(token string) (status int, text string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/requests", strings.NewReader(string(body)))
		s.T.Must(err)
		q.Header.Set("Content-Type", cloudevent.StructuredJSON)
		q.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(q)
		s.T.Must(err)
		defer got.Body.Close()
		all, err := io.ReadAll(got.Body)
		s.T.Must(err)
		return got.StatusCode, string(all)
	}
	if status, text := post("stranger"); status != http.StatusUnauthorized {
		t.Errorf("a forged token: %d %s", status, text)
	}
	account := "system:serviceaccount:" + s.Namespace + ":asker"
	want := "user " + account + ` cannot create resource \"requests\" in API group \"rehome.dev\" in namespace ` + s.Namespace
	if status, text := post(token); status != http.StatusForbidden || !strings.Contains(text, `"detail":"`+want+`"`) {
		t.Errorf("without the right: %d %s, want %s", status, text, want)
	}

	allowRequests(s, "asker")
	var text string
	expect.EventuallyWithState(t, "the right is there, and the request taken", func() (bool, string) { // the authorizer of the API server needs a moment to notice
		var status int
		status, text = post(token)
		return status == http.StatusAccepted, text
	})
	got, err := cloudevent.ReadStructured([]byte(text))
	s.T.Must(err)
	receipt := schematest.Decode[schemas.Receipt](s.T, got)
	if receipt.State != schemas.RequestAccepted || len(receipt.Pods) != 1 || receipt.Pods[0].Pod.UID != pod.UID {
		t.Errorf("got the receipt %+v", receipt)
	}
	if audit := s.WaitEvicted(0, 1); audit[0].UID != pod.UID {
		t.Errorf("evicted %+v, want %s", audit, pod.UID)
	}
	s.WaitRunning("app=api", 1)
}
