package cli

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/command"
)

// bindFlagsOf reads the settings as a command does that is called with these arguments.
func bindFlagsOf(t *testing.T, c *cobra.Command, arguments ...string) settings.Settings {
	t.Helper()
	other := &cobra.Command{Use: c.Use}
	flags := command.BindFlags(other)
	if err := other.ParseFlags(arguments); err != nil {
		t.Fatal(err)
	}
	var got settings.Settings
	if err := command.WithSettings(other, flags, func(s settings.Settings) error { got = s; return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestMistakes(t *testing.T) {
	const strategies = "[RemovePodsViolatingNodeTaints RemovePodsHavingTooManyRestarts PodLifeTime RemoveFailedPods " +
		"RemoveDuplicates RemovePodsViolatingInterPodAntiAffinity RemovePodsViolatingNodeAffinity " +
		"RemovePodsViolatingTopologySpreadConstraint LowNodeUtilization HighNodeUtilization"
	const all, hosted = strategies + "]", strategies + " Request]"
	for _, c := range []struct {
		name      string
		arguments []string
		want      string
	}{
		{"a flag that is not known", []string{"run", "--nope"}, "unknown flag: --nope"},
		{"a command that is nearly one", []string{"ran"}, `unknown command "ran"; did you mean run?`},
		{"a command that is none", []string{"moveeverything"}, `unknown command "moveeverything"`},
		{"an argument where none is taken", []string{"run", "x"}, `rehome run takes no arguments, got ["x"]`},
		{"no policy", []string{"run"}, "no policy: name a file with --policy or REHOME_POLICY"},
		{"a policy that is not there", []string{"run", "--policy", "nope.yaml"}, "policy: open nope.yaml: no such file or directory"},
		{
			"a strategy that is not known", []string{"functions", "Nope"},
			"no strategy \"Nope\"; there are: " + hosted,
		},
		{"a function that is not known", []string{"serve", "Nope"}, "no strategy \"Nope\"; there are: " + all},
		{"a function without a name", []string{"serve"}, "want the name of one strategy, got []; there are: " + all},
		{
			"a function with two names", []string{"serve", "PodLifeTime", "Nope"},
			`want the name of one strategy, got ["PodLifeTime" "Nope"]; there are: ` + all,
		},
		{
			"an address that is none", []string{"serve", "PodLifeTime", "--address", "8080"},
			"--address: cannot listen on 8080: listen tcp: address 8080: missing port in address",
		},
		{
			"one role without a bus", []string{"functions"},
			"one role alone needs an external bus: set REHOME_NATS_URL or use `rehome run`",
		},
		{"a setup without a bus", []string{"setup"}, "no bus: set REHOME_NATS_URL or --nats-url; `rehome run` sets up its own"},
		{"a type of event that there is not", []string{"events", "--type", "pods"}, `--type: want delta, intents, verdict, receipt, maintenance, scope or request, got "pods"`},
		{
			"an outcome that there is not", []string{"events", "--outcome", "moved"},
			"--outcome: want one of [evicted restarted requested deferred rejected withdrawn expired failed settled], got \"moved\"",
		},
		{"a pod without its namespace", []string{"events", "--pod", "a/b,api-0"}, `--pod: want NAMESPACE/NAME such as shop/api-0, got "api-0"`},
		{"a node without a name", []string{"events", "--node", "worker-1,"}, "--node: want a name, got none"},
		{
			"what no event can be", []string{"events", "--type", "delta", "--outcome", "evicted"},
			"no event can be all that: only verdicts have an outcome, deltas have no strategy, and a pod is in its own namespace",
		},
		{"nowhere to forward to", []string{"forward"}, "no sink: name a URL with --to or K_SINK"},
		{"a sink that is none", []string{"forward", "--to", "sink:8080"}, `--to: url "sink:8080": want http://HOST/PATH or https://HOST/PATH`},
		{"scopes to forward", []string{"forward", "--to", "http://a", "--type", "scope"}, "--type: scopes and requests have no history: want delta, intents, verdict, receipt or maintenance"},
		{"a mode that there is not", []string{"forward", "--to", "http://a", "--mode", "batch"}, `--mode: want binary or structured, got "batch"`},
		{"no post at once", []string{"forward", "--to", "http://a", "--parallel", "0"}, "--parallel: want at least 1, got 0"},
		{"no try", []string{"forward", "--to", "http://a", "--tries", "0"}, "--tries: want at least 1, got 0"},
		{"no time to post", []string{"forward", "--to", "http://a", "--timeout", "0s"}, "--timeout: want a duration such as 10s, got 0s"},
		{"forwarding from the future on", []string{"forward", "--to", "http://a", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
		{"a token that is not there", []string{"forward", "--to", "http://a", "--token-file", "nope"}, "--token-file: open nope: no such file or directory"},
		{"forwarding what no event can be", []string{"forward", "--to", "http://a", "--pod", "a"}, `--pod: want NAMESPACE/NAME such as shop/api-0, got "a"`},
		{"removing nothing", []string{"forward", "--remove"}, "--remove: want --name, or --to with the URL that the name is made of"},
		{
			"removing in a dry run", []string{"forward", "--remove", "--name", "a", "--dry-run"},
			"--remove: want it without --dry-run and REHOME_DRY_RUN",
		},
		{"scopes of the past", []string{"events", "--type", "verdict,scope"}, "--type: scopes have no history: use --follow"},
		{"an output that there is not", []string{"events", "-o", "yaml"}, `--output: want text or json, got "yaml"`},
		{"nothing to simulate", []string{"simulate", "--policy", "p"}, "no objects: name a file, a directory or - with --objects"},
		{"a time that is none", []string{"simulate", "--objects", "-", "--now", "noon"}, `--now: want a time such as 2030-01-02T15:04:05Z, got "noon"`},
		{"an output that a simulation does not have", []string{"simulate", "-o", "text"}, `--output: want table or json, got "text"`},
		{"a round without a policy", []string{"once"}, "no policy: name a file with --policy or REHOME_POLICY"},
		{"an output that a round does not have", []string{"once", "-o", "yaml"}, `--output: want table or json, got "yaml"`},
		{"an output that a status does not have", []string{"status", "-o", "text"}, `--output: want table or json, got "text"`},
		{"an output that a list does not have", []string{"loops", "-o", "text"}, `--output: want table or json, got "text"`},
		{"workload circuit breakers of nothing", []string{"loops", "clear"}, "want one workload such as shop/deployment/api, or --all, got []"},
		{"workload circuit breakers of half a workload", []string{"loops", "clear", "shop/api"}, `want a workload such as shop/deployment/api, got "shop/api"`},
		{"workload circuit breakers of a workload and of all", []string{"loops", "clear", "a/b/c", "--all"}, `--all: want it alone or a workload, got both, ["a/b/c"]`},
		{"dead letters that are not listed as asked", []string{"dead", "list", "-o", "text"}, `--output: want table or json, got "text"`},
		{"fewer dead letters than none", []string{"dead", "list", "--limit", "-1"}, "--limit: want at least 0, got -1"},
		{"dead letters of the future", []string{"dead", "list", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
		{
			"dead letters of what is no stream", []string{"dead", "list", "--stream", "rehome.>"},
			`--stream: want the name of a stream such as REHOME_SCOPES, got "rehome.>"`,
		},
		{"no dead letter to show", []string{"dead", "show"}, "want one number of a dead letter, got []"},
		{
			"a dead letter that is not named by a number", []string{"dead", "show", "first"},
			"want the number of a dead letter as `rehome dead list` shows it, got \"first\"",
		},
		{"a dead letter with the number 0", []string{"dead", "drop", "1", "0"}, "want the number of a dead letter as `rehome dead list` shows it, got \"0\""},
		{"dead letters and all of them", []string{"dead", "drop", "--all", "1"}, `--all: want it alone or numbers, got both, ["1"]`},
		{"no dead letters to retry", []string{"dead", "retry"}, "want numbers of dead letters, or --all, got none"},
		{
			"every single dead letter", []string{"dead", "retry", "--all"},
			"--all: want --since, --stream or --by to say which, or --yes for every single one",
		},
		{
			"a filter of numbers", []string{"dead", "drop", "--by", "PodLifeTime", "1"},
			"--since, --stream, --by and --yes: want them with --all, got numbers",
		},
		{
			"a dry run of what cannot be undone", []string{"dead", "drop", "1", "--dry-run"},
			"rehome dead drop: want it without --dry-run and REHOME_DRY_RUN; `rehome dead list` changes nothing",
		},
		{
			"a dry run of what the actuator does", []string{"loops", "clear", "--all", "--dry-run"},
			"rehome loops clear: want it without --dry-run and REHOME_DRY_RUN; `rehome loops` changes nothing",
		},
		{"a wish about dead letters that there is not", []string{"dead", "clear"}, `unknown command "clear"`},
		{"no pod to explain", []string{"explain", "pod"}, "want one pod such as shop/api-1, got []"},
		{"a pod without a namespace", []string{"explain", "pod", "api-1"}, `want a pod such as shop/api-1, got "api-1"`},
		{"an explanation of something else", []string{"explain", "node"}, `unknown command "node"`},
		{"a history of the future", []string{"explain", "pod", "a/b", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
		{"an explanation by a policy that is not there", []string{"explain", "pod", "a/b", "--policy", "nope.yaml"},
			"policy: open nope.yaml: no such file or directory"},
		{"a request without a reason", []string{"request", "node", "n1"}, "--reason: want words that say why, got none"},
		{"a request for nothing", []string{"request", "pod", "--reason", "x"}, "want pods such as shop/api-1, got none"},
		{"a request for a pod without a namespace", []string{"request", "pod", "a", "--reason", "x"}, `want a pod such as shop/api-1, got "a"`},
		{"a request for two nodes", []string{"request", "node", "a", "b", "--reason", "x"}, `want the name of one node, got ["a" "b"]`},
		{
			"a request for half a workload", []string{"request", "workload", "deployment/api", "--reason", "x"},
			`want a workload such as deployment/shop/api, got "deployment/api"`,
		},
		{"a request for all pods", []string{"request", "pods", "-A", "--reason", "x"}, "--selector: want labels such as app=api,tier!=test, got none"},
		{"a request for pods anywhere", []string{"request", "pods", "-l", "a", "--reason", "x"}, "want either --namespace or --all-namespaces"},
		{"a request by a method that there is not", []string{"request", "node", "a", "--reason", "x", "--method", "drain"},
			`--method: want auto, evict or restart, got "drain"`},
		{"a request of a sender that is no name", []string{"request", "evaluate", "--reason", "x", "--sender", "Me"},
			`--sender: want 1 to 63 of a-z, 0-9 and -, got "Me"`},
		{"a request that is tried too long", []string{"request", "node", "a", "--reason", "x", "--deadline", "25h"},
			"--deadline: want at most 24h0m0s, such as 30m, got 25h0m0s"},
		{"a dry run of a question", []string{"request", "evaluate", "--reason", "x", "--dry-run"},
			"rehome request evaluate: want it without --dry-run and REHOME_DRY_RUN, which are for pods"},
		{"a request to cancel nothing", []string{"request", "cancel", "--reason", "x"}, "want the name of one request, got []"},
		{"a request that there is not", []string{"request", "drain"}, `unknown command "drain"`},
		{"a time in the future", []string{"events", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			root := newRoot()
			root.SetArgs(c.arguments)
			root.SetOut(&bytes.Buffer{})
			root.SetErr(&bytes.Buffer{})
			err := root.ExecuteContext(t.Context())
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestWhatKnativeAddsToEventsHasToBeAMapOfExtensions(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                              `K_CE_OVERRIDES: want {"extensions": {"NAME": "VALUE"}}: unexpected end of JSON input`,
		`{"extensions": {"my-key": ""}}`: `K_CE_OVERRIDES: attribute "my-key": want lower-case letters and digits`,
		`{"extensions": {"id": "1"}}`:    `K_CE_OVERRIDES: attribute "id": want an extension, got a standard attribute`,
	} {
		t.Setenv("K_CE_OVERRIDES", text)
		_, err := execute(t, "forward", "--to", "http://a")
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
