package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/functions/httpfunction"
)

// defaults are the settings of an empty environment.
func defaults(t *testing.T) settings {
	t.Helper()
	s, err := readSettings()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAnEmptyEnvironmentIsRight(t *testing.T) {
	want := settings{
		Cluster: "default", NATSReplicas: 1, History: 72 * time.Hour, HTTPAddress: "127.0.0.1:8642",
		LeaseDuration: 15 * time.Second, Resync: 30 * time.Minute, Settle: 10 * time.Millisecond, Parallel: actuator.DefaultParallel,
		ServeBytes: httpfunction.DefaultMaxBytes, ServeParallel: httpfunction.DefaultParallel,
		LogLevel: slog.LevelInfo, LogFormat: "text",
	}
	if got := defaults(t); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := want.check(); err != nil {
		t.Error(err)
	}
}

func TestASettingThatIsWrongIsNamed(t *testing.T) {
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
		{"REHOME_RESYNC", "1s", "REHOME_RESYNC: want at least 1m, got 1s"},
		{"REHOME_CLUSTER", "a b", `REHOME_CLUSTER: want a name that can stand in a URI, got "a b"`},
		{"REHOME_SETTLE", "soon", `REHOME_SETTLE: want a duration such as 90s or 1h, got "soon"`},
		{"REHOME_PARALLEL", "many", `REHOME_PARALLEL: want a whole number, got "many"`},
		{"REHOME_DRY_RUN", "maybe", `REHOME_DRY_RUN: want true or false, got "maybe"`},
		{"REHOME_LOG_LEVEL", "LOUD", `REHOME_LOG_LEVEL: want DEBUG, INFO, WARN or ERROR, got "LOUD"`},
	} {
		t.Run(c.variable, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			s, err := readSettings()
			if err == nil {
				err = s.check()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got error %v, want %s", err, c.want)
			}
			if code := exitCode(err); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
		})
	}
}

func TestAFlagOverridesTheEnvironmentAndOnlyWhenItIsGiven(t *testing.T) {
	t.Setenv("REHOME_POLICY", "environment.yaml")
	t.Setenv("REHOME_STORE_DIR", "/environment")
	t.Setenv("REHOME_DRY_RUN", "true")
	c := runCommand()
	s := bindFlagsOf(t, c, "--policy", "flag.yaml", "--dry-run=false")
	if s.Policy != "flag.yaml" || s.StoreDir != "/environment" || s.DryRun {
		t.Errorf("got policy %q, store %q, dry run %v; want flag.yaml, /environment, false", s.Policy, s.StoreDir, s.DryRun)
	}
}

func TestTheSettingsAreListedWithDefaultAndMeaning(t *testing.T) {
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"settings"})
	root.SetOut(&out)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := "VARIABLE                  DEFAULT         MEANING"; lines[0] != want {
		t.Errorf("got  %q\nwant %q", lines[0], want)
	}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if !strings.HasPrefix(fields[0], "REHOME_") || len(fields) < 2 {
			t.Errorf("a line without a variable or a meaning: %q", line)
		}
	}
}
