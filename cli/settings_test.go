package cli

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/functions/httpfunction"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// defaults returns the settings of an empty environment.
func defaults(t *testing.T) settings.Settings {
	t.Helper()
	s, err := settings.Read()
	expect.Must(t, err)
	return s
}

func TestEmptyEnvironment(t *testing.T) {
	want := settings.Settings{
		Cluster: "default", Installation: "rehome", LeaseNamespace: "kube-system", NATSReplicas: 1, History: 72 * time.Hour, HTTPAddress: "127.0.0.1:8642", APILocal: "127.0.0.1:8644", HTTPTLS: "off",
		LeaseDuration: 15 * time.Second, Resync: 30 * time.Minute, Settle: 10 * time.Millisecond, Parallel: actuator.DefaultParallel,
		StoreReserve: 64 << 20, Maintenance: true,
		ServeBytes: httpfunction.DefaultMaxBytes, ServeParallel: httpfunction.DefaultParallel,
		LogLevel: slog.LevelInfo, LogFormat: "text",
	}
	if got := defaults(t); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := want.Check(); err != nil {
		t.Error(err)
	}
}

// TestVariablesOfOtherPrograms sets each variable without its prefix.
func TestVariablesOfOtherPrograms(t *testing.T) {
	page := filetest.Read(t, "../docs/settings.md")
	variables := regexp.MustCompile("(?m)^\\| `REHOME_(\\w+)`").FindAllStringSubmatch(page, -1)
	if len(variables) == 0 {
		t.Fatal("the page has no variables")
	}
	want := defaults(t)
	for _, v := range variables {
		t.Setenv(v[1], "1") // a valid value for most types
		if got, err := settings.Read(); err != nil || got != want {
			t.Fatalf("with %s: got error %v and settings\n%+v\nwant\n%+v", v[1], err, got, want)
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	for _, c := range []struct {
		variable, value, want string
	}{
		{"REHOME_LOG_FORMAT", "xml", `REHOME_LOG_FORMAT: want text or json, got "xml"`},
		{"REHOME_NATS_REPLICAS", "2", "REHOME_NATS_REPLICAS: want 1, 3 or 5, got 2"},
		{"REHOME_LEASE_DURATION", "1s", "REHOME_LEASE_DURATION: want at least 3s, got 1s"},
		{"REHOME_PARALLEL", "0", "REHOME_PARALLEL: want at least 1, got 0"},
		{"REHOME_SERVE_BYTES", "0", "REHOME_SERVE_BYTES: want at least 1, got 0"},
		{"REHOME_SERVE_BYTES", "8MiB", `REHOME_SERVE_BYTES: want a whole number, got "8MiB"`},
		{"REHOME_SERVE_PARALLEL", "0", "REHOME_SERVE_PARALLEL: want at least 1, got 0"},
		{"REHOME_HISTORY", "24h", "REHOME_HISTORY: want at least 25h0m0s, because an open request needs its receipt for a day, got 24h0m0s"},
		{"REHOME_RESYNC", "1s", "REHOME_RESYNC: want at least 1m, got 1s"},
		{"REHOME_LISTEN", ":4222", "REHOME_LISTEN_CERT_FILE: want the server's certificate, since REHOME_LISTEN is set, got nothing"},
		{"REHOME_LISTEN_AUTH", "auth", "REHOME_LISTEN_AUTH: want it with REHOME_LISTEN, got no REHOME_LISTEN"},
		{"REHOME_HTTP_TLS", "on", `REHOME_HTTP_TLS: want off, self-signed or files, got "on"`},
		{"REHOME_HTTP_TLS", "files", "REHOME_HTTP_CERT_FILE: want the file with the certificate, since REHOME_HTTP_TLS is files, got nothing"},
		{"REHOME_HTTP_CERT_FILE", "c", "REHOME_HTTP_CERT_FILE: want it with REHOME_HTTP_TLS=files, got REHOME_HTTP_TLS=off"},
		{"REHOME_HTTP_KEY_FILE", "k", "REHOME_HTTP_KEY_FILE: want it with REHOME_HTTP_TLS=files, got REHOME_HTTP_TLS=off"},
		{"REHOME_HTTP_AUTH", "yes", `REHOME_HTTP_AUTH: want true or false, got "yes"`},
		{"REHOME_HTTP_AUTH", "true", "REHOME_HTTP_AUTH: want REHOME_HTTP_TLS=self-signed or files with it, got off: " +
			"tokens would travel in the open"},
		{"REHOME_HTTP2", "true", "REHOME_HTTP2: want REHOME_HTTP_TLS or REHOME_API_TLS to be self-signed or files, got off: " +
			"HTTP/2 is offered over TLS only"},
		{"REHOME_HTTP2", "2", `REHOME_HTTP2: want true or false, got "2"`},
		{"REHOME_PROFILES", "all", `REHOME_PROFILES: want true or false, got "all"`},
		{"REHOME_API_TLS", "on", `REHOME_API_TLS: want off, self-signed or files, got "on"`},
		{"REHOME_BUS_PREFIX", "rehome", `REHOME_BUS_PREFIX: want at most 32 letters, digits, and hyphens, such as eu1, but not rehome or KV, ` +
			`got "rehome"`},
		{"REHOME_CLUSTER", "a b", `REHOME_CLUSTER: want a name that can stand in a URI, got "a b"`},
		{"REHOME_SETTLE", "soon", `REHOME_SETTLE: want a duration such as 90s or 1h, got "soon"`},
		{"REHOME_PARALLEL", "many", `REHOME_PARALLEL: want a whole number, got "many"`},
		{"REHOME_DRY_RUN", "maybe", `REHOME_DRY_RUN: want true or false, got "maybe"`},
		{"REHOME_LOG_LEVEL", "LOUD", `REHOME_LOG_LEVEL: want DEBUG, INFO, WARN, or ERROR, got "LOUD"`},
	} {
		t.Run(c.variable+"="+c.value, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			s, err := settings.Read()
			if err == nil {
				err = s.Check()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got error %v, want %s", err, c.want)
			}
		})
	}
}

func TestFlagsOverrideEnvironment(t *testing.T) {
	t.Setenv("REHOME_POLICY", "environment.yaml")
	t.Setenv("REHOME_STORE_DIR", "/environment")
	t.Setenv("REHOME_DRY_RUN", "true")
	c := &cobra.Command{}
	s := cmdutil.Settings(c).Policy().Bus().DryRun()
	if err := c.ParseFlags([]string{"--policy", "flag.yaml", "--dry-run=false"}); err != nil {
		t.Fatal(err)
	}
	if s.Settings.Policy != "flag.yaml" || s.StoreDir != "/environment" || s.Settings.DryRun {
		t.Errorf("got policy %q, store %q, dry run %v; want flag.yaml, /environment, false", s.Settings.Policy, s.StoreDir, s.Settings.DryRun)
	}
}
