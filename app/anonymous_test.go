package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestAnonymousNATS connects to servers elsewhere with and without credentials.
func TestAnonymousNATS(t *testing.T) {
	open := bustest.Serve(t, &server.Options{})
	known := bustest.Serve(t, &server.Options{Users: []*server.User{{Username: "rehome", Password: "x"}}})
	for name, c := range map[string]struct {
		url   string
		warns bool
	}{
		"no key":     {"nats://" + open.Addr().String(), true},
		"a password": {"nats://rehome:x@" + known.Addr().String(), false},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			p := &process{
				settings: settings.Settings{NATSURL: c.url}, roles: Roles{Dispatcher: true}, metrics: serving.NewMetrics(),
				log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			}
			stop, err := p.openBus()
			expect.Must(t, err)
			stop()
			if got := strings.Contains(log.String(), "uses the NATS servers without a key"); got != c.warns {
				t.Errorf("it warns: %v, want %v; the log is %s", got, c.warns, &log)
			}
		})
	}
}
