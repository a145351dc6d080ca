package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// publishExamples stores the published examples that the history has, each on its subject.
func publishExamples(t *testing.T, b *bus.Bus) {
	t.Helper()
	for _, example := range schematest.Examples(t) {
		e := example.Event
		switch e.Type {
		case schemas.DeltaType:
			d := schematest.Decode[schemas.Delta](t, e)
			e.Channel = d.Channel()
		case schemas.VerdictType:
			v := schematest.Decode[schemas.Verdict](t, e)
			e.Channel = v.Channel()
		default:
			continue
		}
		bustest.Publish(t, b, e)
	}
}

// verdictLines is what listeners print of the examples of verdicts, sorted.
func verdictLines(t *testing.T) (lines []string) {
	t.Helper()
	for _, example := range schematest.Examples(t) {
		if v, err := schemas.Decode[schemas.Verdict](example.Event); err == nil {
			lines = append(lines, fmt.Sprintf("%s %s %s", v.Outcome, v.Intent.Pod, v.Message))
		}
	}
	slices.Sort(lines)
	return lines
}

// running starts a program until the end of the test, and returns what it prints.
func running(t *testing.T, c *exec.Cmd) *program.Log {
	t.Helper()
	out := &program.Log{}
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return out
}

// prints waits until a program has printed as many lines as wanted, and compares them in any order.
func prints(t *testing.T, out *program.Log, want []string) {
	t.Helper()
	lines := func() []string { // complete lines: a program can write one in pieces
		all := strings.Split(out.String(), "\n")
		return all[:len(all)-1]
	}
	expect.EventuallyWithState(t, fmt.Sprintf("it prints %d lines", len(want)), func() (bool, string) {
		return len(lines()) >= len(want), out.String()
	})
	got := lines()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestForwardingPageSink runs the two commands of docs/events.md about a sink over HTTP.
func TestForwardingPageSink(t *testing.T) {
	binary := expect.Value(t, program.Build)
	commands := regexp.MustCompile(`(?m)^    python3 (docs/\S+) 8080\n    rehome (forward --to http://127\.0\.0\.1:8080/ .*)$`).
		FindStringSubmatch(filetest.Read(t, root, "docs/events.md"))
	if commands == nil {
		t.Fatal("the page has no sink with a forwarder")
	}
	for times, more := range map[string][]string{"twice, when it knows the events": {"--name", "again"}, "once": nil} {
		t.Run(times, func(t *testing.T) {
			b, environment := busBehindSocket(t)
			publishExamples(t, b)
			address := expect.Value(t, program.FreeAddress)
			_, port, _ := strings.Cut(address, ":")
			sink := exec.CommandContext(t.Context(), "python3", filepath.Join(root, commands[1]), port)
			printed := running(t, sink)
			arguments := append(strings.Fields(strings.Replace(commands[2], "127.0.0.1:8080", address, 1)), "--since", "1h")
			forward(t, binary, arguments, environment)
			prints(t, printed, verdictLines(t))
			if more != nil {
				p := forward(t, binary, append(arguments, more...), environment)
				expect.Eventually(t, "all came again", func() bool {
					_, figures := p.Get("metrics")
					return strings.Contains(figures, fmt.Sprintf("{result=\"delivered\"} %d\n", len(verdictLines(t))))
				})
				prints(t, printed, verdictLines(t))
			}
		})
	}
}

// busBehindSocket starts a bus like `rehome run`, and returns the environment for commands.
func busBehindSocket(t *testing.T) (b *bus.Bus, environment []string) {
	t.Helper()
	dir := filetest.ShortDir(t)
	server := bustest.Server(t, embed.Options{StoreDir: dir, Socket: filepath.Join(dir, "bus.sock")})
	b = bustest.Connect(t, bus.Options{Name: "rehome", Server: server})
	bustest.SetUp(t, b, bus.Setup{})
	return b, []string{"REHOME_STORE_DIR=" + dir, "REHOME_NATS_URL="}
}

// forward runs rehome forward until the end of the test, and returns it when it is ready.
func forward(t *testing.T, binary string, arguments, environment []string) *program.Program {
	t.Helper()
	p := programtest.Start(t, binary, arguments, environment)
	programtest.Ready(t, p)
	return p
}

// TestEventsPageProgram runs the Go program whose main part is on the page.
func TestEventsPageProgram(t *testing.T) {
	url := bustest.Serve(t, &server.Options{}).ClientURL()
	b := bustest.Connect(t, bus.Options{URL: url})
	bustest.SetUp(t, b, bus.Setup{})
	example, err := program.GoExample("listen")
	expect.Must(t, err)
	start := func() (stop func(), printed *bytes.Buffer) {
		out := &bytes.Buffer{}
		c := exec.CommandContext(t.Context(), example.Program, url)
		c.Stdout = out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t, "it has read everything", func() bool {
			backlog, err := b.Backlog(t.Context(), "audit")
			return err == nil && backlog == bus.Backlog{}
		})
		return func() {
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}, out
	}
	stop, printed := start()
	stop()
	if printed.Len() > 0 {
		t.Errorf("it prints what was before it: %s", printed)
	}
	publishExamples(t, b)
	want := verdictLines(t)
	expect.Eventually(t, "all verdicts wait for it", func() bool {
		backlog, err := b.Backlog(t.Context(), "audit")
		return err == nil && backlog.Waiting == uint64(len(want))
	})
	stop, printed = start()
	stop()
	got := strings.Split(strings.TrimSpace(printed.String()), "\n")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	file := filetest.Read(t, root, "docs/examples/listen/main.go")
	shown := regexp.MustCompile(`(?m)^    b, err := bus\.Connect(?:.*\n)(?:    .*\n)*`).FindString(filetest.Read(t, root, "docs/events.md"))
	inFile := regexp.MustCompile(`(?m)^    `).ReplaceAllString(shown, "\t")
	if shown == "" || !strings.Contains(file, inFile) {
		t.Errorf("the page shows\n%s\nwhich is not in the program", inFile)
	}
}

// natsFlags are the flags of the nats program that pages may use, by its command.
var natsFlags = map[string][]string{
	"sub": {"--stream", "--since"}, "stream view": {},
	"consumer add":  {"--filter", "--deliver", "--ack", "--pull", "--defaults"},
	"consumer next": {"--count", "--ack"},
}

// subjectsOf are all subjects that events and dead letters come on, with what stands for a name in capitals.
func subjectsOf() []string {
	all := []string{"rehome.dead.STREAM.READER"}
	for _, typ := range schemas.EventTypes() {
		all = append(all, schemas.Subjects(typ)...)
	}
	return all
}

// mayMatch reports whether a filter can match a subject: capitals in the subject stand for any name.
func mayMatch(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range f {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s):
			return false
		case token != "*" && token != s[i] && s[i] != strings.ToUpper(s[i]):
			return false
		}
	}
	return len(f) == len(s)
}

func TestNATSCommandsOnPages(t *testing.T) {
	streams := []string{bus.StreamScopes, bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamDead}
	commands := 0
	for _, name := range pages(t) {
		text := filetest.Read(t, root, name)
		for _, line := range regexp.MustCompile(`(?m)^    nats (.*)$`).FindAllStringSubmatch(text, -1) {
			commands++
			command := strings.Fields(line[1])
			verb := command[0]
			if _, ok := natsFlags[verb]; !ok {
				verb = strings.Join(command[:min(2, len(command))], " ")
			}
			flags, known := natsFlags[verb]
			if !known {
				t.Errorf("%s: nats has no command %q that this test knows", name, verb)
			}
			for _, word := range command {
				if strings.HasPrefix(word, "--") && !slices.Contains(flags, word) {
					t.Errorf("%s: nats %s: there is no flag %s", name, verb, word)
				}
				if strings.HasPrefix(word, "REHOME_") && !slices.Contains(streams, word) {
					t.Errorf("%s: nats %s: there is no stream %s", name, verb, word)
				}
			}
		}
		for _, quoted := range regexp.MustCompile(`['"](rehome\.[^'"\s/]+)['"]`).FindAllStringSubmatch(text, -1) {
			filter := strings.Replace(quoted[1], "…", ">", 1) // shortened in the output of a program
			if !slices.ContainsFunc(subjectsOf(), func(s string) bool { return mayMatch(filter, s) }) {
				t.Errorf("%s: nothing is published on %s", name, quoted[1])
			}
		}
	}
	if commands < 10 {
		t.Errorf("only %d commands were found", commands)
	}
}

// TestForwardingPageKnativeManifest holds the manifest against the program, and its objects against each other.
func TestForwardingPageKnativeManifest(t *testing.T) {
	found := manifesttest.Objects(t, []byte(filetest.Read(t, root, "docs/examples/forward.yaml")))
	if len(found) != 2 {
		t.Fatalf("got %d objects, want a Deployment and a SinkBinding", len(found))
	}
	d := manifesttest.Typed[appsv1.Deployment](t, found[0])
	binary := expect.Value(t, program.Build)
	container := d.Spec.Template.Spec.Containers[0]
	help := exec.CommandContext(t.Context(), binary, append(container.Args, "--help")...)
	if out, err := help.CombinedOutput(); err != nil || !strings.Contains(string(out), "rehome forward [flags]") {
		t.Errorf("%v: %s", err, out)
	}
	var binding struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
		Spec             struct {
			Subject struct{ APIVersion, Kind, Name string }
			Sink    struct {
				Ref struct{ APIVersion, Kind, Name string }
			}
			CEOverrides struct{ Extensions map[string]string }
		}
	}
	expect.Must(t, json.Unmarshal(expect.ToJSON(t, found[1]), &binding))
	got := fmt.Sprint(binding)
	want := fmt.Sprintf("{sources.knative.dev/v1 SinkBinding {%s %s} {{%s %s %s} {{eventing.knative.dev/v1 Broker default}} {map[cluster:prod]}}}",
		d.Name, d.Namespace, d.APIVersion, d.Kind, d.Name)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
