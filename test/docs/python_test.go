package docs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// pythonOn returns the only Python program on a page.
func pythonOn(t *testing.T, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^    import .*\n(?:    .*\n|\n)*`).FindAllString(filetest.Read(t, root, name), -1)
	if len(found) != 1 || !strings.Contains(found[0], "nats.connect(") {
		t.Fatalf("%s has %d programs in Python, want one that uses NATS", name, len(found))
	}
	return regexp.MustCompile(`(?m)^    `).ReplaceAllString(found[0], "")
}

// runPython runs the program of a page against a server until the end of the test, and returns when it has subscribed. Where
// nats-py is not installed, testdata/python stands in for it.
func runPython(t *testing.T, name string, s *server.Server) *program.Log {
	t.Helper()
	text := pythonOn(t, name)
	const url = "nats://127.0.0.1:4222"
	if !strings.Contains(text, url) {
		t.Fatalf("%s: the program does not connect to %s", name, url)
	}
	python, err := filepath.Abs("testdata/python")
	expect.Must(t, err)
	c := exec.CommandContext(t.Context(), "python3", "-u", "-c", strings.ReplaceAll(text, url, s.ClientURL()))
	c.Env = append(os.Environ(), "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1")
	before := s.NumSubscriptions()
	out := running(t, c)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program of %s said:\n%s", name, out)
		}
	})
	expect.Eventually(t, "it has subscribed", func() bool { return s.NumSubscriptions() > before })
	return out
}

// busOn sets up the bus on a server.
func busOn(t *testing.T, s *server.Server) *bus.Bus {
	t.Helper()
	b := bustest.Connect(t, bus.Options{URL: s.ClientURL()})
	bustest.SetUp(t, b, bus.Setup{})
	return b
}

func TestEventsPagePythonProgram(t *testing.T) {
	s := bustest.Serve(t, &server.Options{})
	b := busOn(t, s)
	out := runPython(t, "docs/events.md", s)
	publishExamples(t, b)
	var want []string
	for _, example := range schematest.Examples(t) {
		if v, err := schemas.Decode[schemas.Verdict](example.Event); err == nil {
			want = append(want, fmt.Sprintf("%s %s %s %s", example.Event.ID, v.Outcome, v.Intent.Pod.Name, v.Message))
		}
	}
	slices.Sort(want)
	prints(t, out, want)
}

func TestRequestsPagePythonProgram(t *testing.T) {
	s := bustest.Serve(t, &server.Options{})
	b := busOn(t, s)
	out := runPython(t, "docs/requests.md", s)
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	asked := make(chan schemas.Event, 1)
	go func() {
		_ = b.FollowRequests(ctx, func(_ context.Context, _ schemas.Event, _ time.Time, read func() schemas.Event) error {
			e := read()
			asked <- e
			return nil
		})
	}()
	var e schemas.Event
	select {
	case e = <-asked:
	case <-ctx.Done():
		t.Fatal("nothing was asked")
	}
	got, err := schemas.Decode[schemas.Request](e)
	want := schemas.Request{
		Sender: "admin", Name: "fan", Action: schemas.ActionDeschedule, Reason: "its fan is replaced",
		Target: &schemas.Target{Node: "worker-9"},
	}
	if err != nil || !reflect.DeepEqual(got, want) || e.Channel != want.Channel() {
		t.Errorf("asked on %s\ngot  %+v, %v\nwant %+v on %s", e.Channel, got, err, want, want.Channel())
	}
	for _, r := range []schemas.Receipt{
		{Sender: "admin", Name: "fan", State: schemas.RequestAccepted, Reason: schemas.ReceiptAccepted, Message: "moving 2 of 2 pods"},
		{Sender: "admin", Name: "fan", State: schemas.RequestFinished, Reason: schemas.ReceiptDone, Message: "all are gone"},
	} {
		receipt := schematest.Event(t, "/clusters/test/watcher", r, time.Now(), e)
		if _, err := b.Publish(ctx, receipt); err != nil {
			t.Fatal(err)
		}
	}
	prints(t, out, []string{"accepted Accepted moving 2 of 2 pods", "finished Done all are gone"})
}

func TestFunctionsPagePythonProgram(t *testing.T) {
	s := bustest.Serve(t, &server.Options{})
	b := busOn(t, s)
	scope := schematest.ExampleOf(t, "scope").Event
	data := schematest.Decode[schemas.NodeScope](t, scope)
	answers := func(label string, padding int) schemas.Intents {
		t.Helper()
		data.Strategy = "KeepOffSpot"
		data.Args = json.RawMessage(fmt.Sprintf(`{"label": %q, "more": %q}`, label, strings.Repeat("x", padding)))
		scope.Data = expect.ToJSON(t, data)
		ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
		defer cancel()
		reply, has, err := b.Ask(ctx, "functions.keep-off-spot", scope)
		if err != nil || !has || reply.Type != schemas.IntentsType {
			t.Fatalf("answered %+v, %v, %v", reply, has, err)
		}
		return schematest.Decode[schemas.Intents](t, reply)
	}
	_, _, err := b.Ask(t.Context(), "functions.keep-off-spot", scope)
	if !errors.Is(err, delivery.ErrUnreachable) {
		t.Errorf("before the program runs: got %v, want an error that is ErrUnreachable", err)
	}
	runPython(t, "docs/functions.md", s)
	var moved []schemas.Intent
	for _, p := range data.Pods {
		if len(p.Protected) == 0 {
			ref := schemas.PodRef{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID}
			moved = append(moved, schemas.Intent{Pod: ref, Node: "worker-7", Reason: "needs a node that stays"})
		}
	}
	want := schemas.Intents{
		Profile: "default", Strategy: "KeepOffSpot", Intents: moved,
		Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-7", Event: scope.ID},
	}
	none := want
	none.Intents = []schemas.Intent{}
	const label = "kubernetes.io/hostname"
	data.Node.Labels = map[string]string{label: "worker-7"}
	for name, c := range map[string]struct {
		label   string
		padding int
		want    schemas.Intents
	}{
		"the node has the label":          {label, 0, want},
		"it does not":                     {"example.com/other", 0, none},
		"the scope comes only compressed": {label, 2 << 20, want}, // the server takes 1 MiB
	} {
		if got := answers(c.label, c.padding); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, c.want)
		}
	}
}
