package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// example is a command on a page, and its output if the page shows it.
type example struct{ command, output string }

// examples are the commands of rehome that stand in the code blocks of a page, with the lines below them.
func examples(page string) []example {
	var found []example
	inside := false // a code block that began with a command
	for line := range strings.Lines(page) {
		code, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented && strings.HasPrefix(code, "rehome "):
			found = append(found, example{command: strings.TrimSpace(code)})
			inside = true
		case inside && (indented || line == "\n"):
			found[len(found)-1].output += code
		default:
			inside = false
		}
	}
	for i := range found {
		found[i].output = strings.Trim(found[i].output, "\n")
	}
	return found
}

// deadBus starts a bus as `rehome run` does, with two dead letters: a scope that is no event, and an answer that lacks
// something. It returns where it is stored.
func deadBus(t *testing.T) (dir string) {
	t.Helper()
	dir = filetest.ShortDir(t)
	server := bustest.Server(t, embed.Options{StoreDir: dir, Socket: filepath.Join(dir, "bus.sock")})
	b := bustest.Connect(t, bus.Options{Name: "rehome", Server: server})
	bustest.SetUp(t, b, bus.Setup{Strategies: []string{"PodLifeTime"}})

	scope := schemas.ScopeHead{Kind: schemas.NodeKind, Key: "worker-1", Profile: "default", Strategy: "PodLifeTime"}
	if _, err := bustest.Raw(t, server).Publish(t.Context(), scope.Channel(), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	until(t, b, 1, func(ctx context.Context) error {
		return b.Work(ctx, bus.Work{Strategy: "PodLifeTime"}, func(context.Context, schemas.Event) error { return nil })
	})
	answer := schemas.Intents{
		Profile: "default", Strategy: "PodLifeTime", Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-1", Sequence: 1},
		Intents: []schemas.Intent{{}},
	}
	e := schematest.Event(t, "/clusters/test/functions", answer, time.Now(), schemas.Event{})
	e.ID = "answer-1"
	if err := b.Answer(t.Context(), e, answer); err != nil {
		t.Fatal(err)
	}
	until(t, b, 2, func(ctx context.Context) error {
		return b.FollowIntents(ctx, func(_ context.Context, e schemas.Event) error {
			return fmt.Errorf("event %s: %w: intents[0] has no id", e.ID, schemas.ErrInvalid)
		})
	})
	return dir
}

// until lets a role work until there are n dead letters.
func until(t *testing.T, b *bus.Bus, n int, work func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	expect.Eventually(t, fmt.Sprintf("there are %d dead letters", n), func() bool {
		numbers, err := b.DeadNumbers(ctx, bus.DeadQuery{})
		return err == nil && len(numbers) == n
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// varying matches values that differ between runs: an age in seconds with its padding, and the number of a message.
var varying = regexp.MustCompile(`\b\d+s {2,}|\b\d{16}\b`)

// TestDeadLettersPageCommands runs each of them against a bus of its own with two dead letters, and
// compares what is printed where the page says what.
func TestDeadLettersPageCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/dead-letters.md"))
	expect.Must(t, err)
	rehome := expect.Value(t, program.Build)
	ran := map[string]bool{}
	for _, e := range examples(string(page)) {
		t.Run(e.command, func(t *testing.T) {
			words := strings.Fields(e.command)[1:]
			ran[strings.Join(words[:2], " ")] = true
			c := exec.CommandContext(t.Context(), rehome, words...)
			c.Env = append(os.Environ(), "REHOME_STORE_DIR="+deadBus(t), "REHOME_NATS_URL=")
			got, err := c.Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				t.Fatalf("%v\n%s", err, exit.Stderr)
			} else if err != nil {
				t.Fatal(err)
			}
			text := varying.ReplaceAllString(strings.TrimRight(string(got), "\n"), "…")
			want := varying.ReplaceAllString(e.output, "…")
			if text == "" || want != "" && text != want {
				t.Errorf("got\n%s\nwant\n%s", got, e.output)
			}
		})
	}
	want := map[string]bool{"get deadletters": true, "deadletters retry": true, "deadletters drop": true}
	if fmt.Sprint(ran) != fmt.Sprint(want) {
		t.Errorf("the page has %v, want %v", ran, want)
	}
}
