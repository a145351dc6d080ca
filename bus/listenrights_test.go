package bus_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// forwarderRights returns the subjects on the page about forwarding, for the name audit.
func forwarderRights(t *testing.T) (publish []string) {
	t.Helper()
	page := filetest.Read(t, "../docs/forwarding.md")
	_, section, _ := strings.Cut(page, "\n## Rights\n")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		publish = append(publish, strings.ReplaceAll(row[1], "NAME", "audit"))
	}
	return publish
}

// guardedServer returns a server with a user without restrictions, and one with these rights.
func guardedServer(t *testing.T, rights bus.Rights) (all, guarded string) {
	t.Helper()
	s := bustest.Serve(t, &server.Options{Users: []*server.User{
		{Username: "all", Password: "a"}, {Username: "guarded", Password: "g", Permissions: permissions(rights)},
	}})
	address := strings.TrimPrefix(s.ClientURL(), "nats://")
	return "nats://all:a@" + address, "nats://guarded:g@" + address
}

// TestForwarderRights listens with these rights, first to all channels and then to one, rejects an event, and reads its
// progress.
func TestForwarderRights(t *testing.T) {
	all, guarded := guardedServer(t, bus.Rights{Publish: forwarderRights(t), Subscribe: []string{"_INBOX_forwarder-audit.>"}})
	admin := bustest.Connect(t, bus.Options{URL: all})
	bustest.SetUp(t, admin, bus.Setup{})
	b := bustest.Connect(t, bus.Options{Name: "forwarder-audit", URL: guarded})
	for _, channels := range [][]string{nil, {"rehome.delta.node.>"}} {
		got := make(chan string, 10)
		expect.Must(t, admin.AddListener(t.Context(), bus.Listener{Name: "audit", Since: at, Channels: channels}))
		stop := expect.Background(t, func(ctx context.Context) error {
			return b.Listen(ctx, bus.Listener{Name: "audit", Existing: true}, func(_ context.Context, e schemas.Event) error {
				got <- e.Subject
				if e.Subject == "nodes/refused" {
					return schemas.ErrInvalid
				}
				return nil
			})
		})
		bustest.Publish(t, admin, bustest.Delta(t, "a"), bustest.Delta(t, "refused"))
		take(t, got, 2)
		expect.Eventually(t, "it has all", func() bool {
			backlog, err := b.Backlog(t.Context(), "audit")
			return err == nil && backlog == bus.Backlog{}
		})
		stop()
	}
	if dead := numbers(t, admin, bus.DeadQuery{By: "audit"}); len(dead) != 2 {
		t.Errorf("dead letters: %v, want two", dead)
	}
	if err := b.RemoveListener(t.Context(), "audit"); err == nil {
		t.Error("it may remove itself, which the page does not list")
	}
}
