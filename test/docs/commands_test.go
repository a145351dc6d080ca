package docs

import (
	"context"
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

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// shell runs lines of a page as they stand there, beside a bus as `rehome run` has it.
type shell struct {
	t           *testing.T
	dir         string
	bus         *bus.Bus
	environment []string
	rounds      int // of examples that were published
}

// shellIn returns a shell in a folder, without a bus.
func shellIn(t *testing.T, dir string, environment ...string) *shell {
	t.Helper()
	path := "PATH=" + filepath.Dir(expect.Value(t, program.Build)) + ":" + os.Getenv("PATH")
	return &shell{t: t, dir: dir, environment: append(append(os.Environ(), environment...), path, "REHOME_HTTP_ADDRESS=", "REHOME_API_LOCAL=")}
}

func newShell(t *testing.T) *shell {
	t.Helper()
	b, environment := busBehindSocket(t)
	s := shellIn(t, t.TempDir(), environment...)
	s.bus = b
	for name, text := range map[string]string{
		"token": "secret", "answer.json": string(schematest.ExampleOf(t, "intents").Document), "slack-url": "http://127.0.0.1:1/", "hook-url": "http://127.0.0.1:1/",
		"message.tmpl": `{"text": {{json .Title}}, "details": {{json .Lines}}, "channel": "ops"}`,
	} {
		filetest.Write(t, filepath.Join(s.dir, name), text)
	}
	return s
}

// lines are the commands of rehome that stand on a page.
func lines(t *testing.T, name string) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^    (rehome .*)$`).FindAllStringSubmatch(filetest.Read(t, root, name), -1) {
		all = append(all, m[1])
	}
	return all
}

// command is a line, which may begin with variables.
func (s *shell) command(line string) *exec.Cmd {
	c := exec.CommandContext(s.t.Context(), "sh", "-c", "exec env "+line)
	c.Dir, c.Env = s.dir, s.environment
	return c
}

// run runs a line to its end, and returns what it prints.
func (s *shell) run(line string) string {
	s.t.Helper()
	c := s.command(line)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		s.t.Errorf("%s: %v\n%s%s", line, err, out, complaint.String())
	}
	return string(out)
}

// publish stores every example once more, as an event of its own.
func (s *shell) publish() {
	s.t.Helper()
	s.rounds++
	for _, example := range schematest.Examples(s.t) {
		e := example.Event
		e.ID = fmt.Sprintf("%s-%d", e.ID, s.rounds)
		if e.Type == schemas.RequestType { // a name is used once
			e.Channel = fmt.Sprintf("rehome.request.admin.%s-%d", example.Name, s.rounds)
		}
		if e.Type == schemas.IntentsType { // which have a way of their own
			continue
		}
		if _, err := s.bus.Publish(s.t.Context(), e); err != nil {
			s.t.Fatal(err)
		}
	}
	e := schematest.ExampleOf(s.t, "intents").Event
	answer := schematest.Decode[schemas.Intents](s.t, e)
	e.ID, answer.Scope.Sequence = fmt.Sprintf("%s-%d", e.ID, s.rounds), uint64(s.rounds)
	e.Data = expect.ToJSON(s.t, answer)
	if err := s.bus.Answer(s.t.Context(), e, answer); err != nil {
		s.t.Fatal(err)
	}
}

// follow runs a command that does not end, until it has printed an event that is published meanwhile.
func (s *shell) follow(line string) {
	s.t.Helper()
	c := s.command(line)
	var out program.Log
	c.Stdout = &out
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	expect.Eventually(s.t, line+" prints something", func() bool {
		s.publish()
		<-time.After(50 * time.Millisecond)
		return out.String() != ""
	})
}

func TestEventsPageCommands(t *testing.T) {
	s := newShell(t)
	s.publish()
	for _, line := range lines(t, "docs/events.md") {
		switch {
		case strings.HasPrefix(line, "rehome forward "): // with its sink it has a test of its own
		case strings.HasSuffix(line, " --follow"):
			s.follow(line)
		case strings.Contains(line, " --strategy PodLifeTime"): // has no example
			s.run(line)
		case s.run(line) == "":
			t.Errorf("%s prints nothing", line)
		}
	}
}

func TestAskingPageCommands(t *testing.T) {
	s := newShell(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan string, 16)
	go func() {
		_ = s.bus.FollowRequests(ctx, func(_ context.Context, _ schemas.Event, _ time.Time, read func() schemas.Event) error {
			e := read()
			r, err := schemas.Decode[schemas.Request](e)
			schematest.Check(t, e)
			asked <- fmt.Sprintf("%s: %s, error %v", r.Action, r.Reason, err)
			return nil
		})
	}()
	var got, want []string
	for _, line := range lines(t, "docs/asking.md") {
		s.run(line + " --detach") // no role answers
		reason := regexp.MustCompile(`--reason '([^']*)'`).FindStringSubmatch(line)
		action := schemas.ActionDeschedule
		for _, other := range []schemas.RequestAction{schemas.ActionEvaluate, schemas.ActionCancel} {
			if strings.Fields(line)[1] == string(other) {
				action = other
			}
		}
		if strings.Contains(line, "rehome drain ") || strings.Contains(line, "rehome uncordon ") {
			action = schemas.ActionMaintain
		}
		want = append(want, fmt.Sprintf("%s: %s, error <nil>", action, reason[1]))
		got = append(got, expect.Receive(t, line+" asks something", asked))
	}
	if !reflect.DeepEqual(got, want) || len(got) == 0 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestForwardingPageCommands(t *testing.T) {
	s := newShell(t)
	var ran []string
	for _, line := range lines(t, "docs/forwarding.md") {
		words := strings.Fields(line)
		ran = append(ran, words[1]+" "+words[2])
		if words[1] != "forward" || words[2] == "--remove" || words[2] == "--add" {
			s.run(line)
			continue
		}
		const name = "NAME" // the placeholder in the last lines
		p := s.command(line + " --name " + name)
		var out program.Log
		p.Stdout, p.Stderr = &out, &out
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t, line+" listens", func() bool {
			_, err := s.bus.Backlog(t.Context(), name)
			return err == nil && strings.Contains(out.String(), "forwarding")
		})
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, &out)
		}
	}
	if want := []string{
		"forward --to", "forward --to", "get deadletters", "forward --remove", "forward --to", "forward --to", "forward --add", "forward --name",
	}; !slices.Equal(ran, want) {
		t.Errorf("the page has %q, want %q", ran, want)
	}
}

func TestFunctionsPageDispatcher(t *testing.T) {
	text := filetest.Read(t, root, "docs/functions.md")
	policy := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(text)
	line := regexp.MustCompile(`(?m)^    REHOME_NATS_URL=\S+ (rehome dispatcher .*)$`).FindStringSubmatch(text)
	if policy == nil || line == nil {
		t.Fatal("the page has no policy, or no dispatcher")
	}
	s, server := newShell(t), bustest.Serve(t, &natsserver.Options{})
	busOn(t, server)
	filetest.Write(t, filepath.Join(s.dir, "policy.yaml"), policy[1])
	s.environment = append(s.environment, "REHOME_NATS_URL="+server.ClientURL())
	out := running(t, s.command(line[1]))
	expect.Eventually(t, "it asks", func() bool {
		return strings.Contains(out.String(), `msg="sending scopes to a function" strategy=KeepOffSpot address=http://keep-off-spot.default.svc`)
	})
}
