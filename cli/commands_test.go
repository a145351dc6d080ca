package cli

import (
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus/filter"
)

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
		{"unknown flag", []string{"run", "--nope"}, "unknown flag: --nope"},
		{"a misspelled command", []string{"ran"}, "unknown command \"ran\" for \"rehome\"\n\nDid you mean this?\n\tdrain\n\trun\n"},
		{"unknown command", []string{"moveeverything"}, `unknown command "moveeverything" for "rehome"`},
		{"an unexpected argument", []string{"run", "x"}, `unknown command "x" for "rehome run"`},
		{"an argument of events", []string{"events", "everything"}, `unknown command "everything" for "rehome events"`},
		{"no policy", []string{"run"}, "no policy: name a file with --policy or REHOME_POLICY"},
		{"missing policy", []string{"run", "--policy", "nope.yaml"}, "policy: open nope.yaml: no such file or directory"},
		{
			"unknown strategy", []string{"functions", "Nope"},
			"no strategy \"Nope\"; there are: " + hosted,
		},
		{"unknown function", []string{"serve", "Nope"}, "no strategy \"Nope\"; there are: " + all},
		{"a function without a name", []string{"serve"}, "accepts 1 arg(s), received 0"},
		{
			"a function with two names", []string{"serve", "PodLifeTime", "Nope"},
			"accepts 1 arg(s), received 2",
		},
		{
			"invalid address", []string{"serve", "PodLifeTime", "--address", "8080"},
			"--address: cannot listen on 8080: listen tcp: address 8080: missing port in address",
		},
		{
			"one role without a bus", []string{"functions"},
			"one role alone needs an external bus: set REHOME_NATS_URL or use `rehome run`",
		},
		{"a setup without a bus", []string{"setup"}, "no bus: set REHOME_NATS_URL or --nats-url; `rehome run` sets up its own"},
		{"unknown type of event", []string{"events", "--type", "pods"}, "--type: want " + strings.Join(filter.History(), ", ") + `, scope or request, got "pods"`},
		{
			"unknown outcome", []string{"events", "--outcome", "moved"},
			"--outcome: want one of [evicted restarted requested deferred rejected withdrawn expired failed settled], got \"moved\"",
		},
		{"a pod without its namespace", []string{"events", "--pod", "a/b,api-0"}, `--pod: want NAMESPACE/NAME such as shop/api-0, got "api-0"`},
		{"a node without a name", []string{"events", "--node", "worker-1,"}, "--node: want a name, got none"},
		{
			"a filter that matches no event", []string{"events", "--type", "delta", "--outcome", "evicted"},
			"no event can match the filter: only verdicts have an outcome, deltas have no strategy, and a pod is in its own namespace",
		},
		{"forward without a sink", []string{"forward"}, "no sink: name a URL with --to or K_SINK"},
		{"invalid sink", []string{"forward", "--to", "sink:8080"}, `--to: url "sink:8080": want http://HOST/PATH or https://HOST/PATH`},
		{"scopes to forward", []string{"forward", "--to", "http://a", "--type", "scope"}, "--type: scopes and requests have no history: want " + filter.Choices()},
		{"unknown mode", []string{"forward", "--to", "http://a", "--mode", "batch"}, `invalid argument "batch" for "--mode" flag: want binary, structured`},
		{"forwarding without parallel posts", []string{"forward", "--to", "http://a", "--parallel", "0"}, "--parallel: want at least 1, got 0"},
		{"forwarding without tries", []string{"forward", "--to", "http://a", "--tries", "0"}, "--tries: want at least 1, got 0"},
		{"forwarding without a timeout", []string{"forward", "--to", "http://a", "--timeout", "0s"}, "--timeout: want a duration such as 10s, got 0s"},
		{"forwarding from the future on", []string{"forward", "--to", "http://a", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
		{"missing token", []string{"forward", "--to", "http://a", "--token-file", "nope"}, "--token-file: open nope: no such file or directory"},
		{"forwarding by an invalid pod", []string{"forward", "--to", "http://a", "--pod", "a"}, `--pod: want NAMESPACE/NAME such as shop/api-0, got "a"`},
		{"removing nothing", []string{"forward", "--remove"}, "--remove: want --name, or --to with the URL that the name is derived from"},
		{
			"removing in a dry run", []string{"forward", "--remove", "--name", "a", "--dry-run"},
			"unknown flag: --dry-run",
		},
		{"scopes of the past", []string{"events", "--type", "verdict,scope"}, "--type: scopes have no history: use --follow"},
		{"unknown output", []string{"events", "-o", "yaml"}, `invalid argument "yaml" for "-o, --output" flag: want json`},
		{"nothing to simulate", []string{"simulate", "--policy", "p"}, `required flag(s) "objects" not set`},
		{"invalid time", []string{"simulate", "--objects", "-", "--now", "noon"}, `--now: want a time such as 2030-01-02T15:04:05Z, got "noon"`},
		{"unknown output of a simulation", []string{"simulate", "-o", "text"}, `invalid argument "text" for "-o, --output" flag: want json`},
		{"a round without a policy", []string{"once"}, "no policy: name a file with --policy or REHOME_POLICY"},
		{"unknown output of a round", []string{"once", "-o", "yaml"}, `invalid argument "yaml" for "-o, --output" flag: want json`},
		{"unknown output of a status", []string{"status", "-o", "text"}, `invalid argument "text" for "-o, --output" flag: want json, yaml`},
		{"unknown output of a list", []string{"get", "breakers", "-o", "text"},
			`invalid argument "text" for "-o, --output" flag: want json, yaml, name, wide`},
		{"circuit breakers of nothing", []string{"breakers", "clear"}, "accepts between 1 and 2 arg(s), received 0"},
		{"circuit breakers of half a workload", []string{"breakers", "clear", "deployment"}, `want one TYPE NAME or TYPE/NAME, got "deployment"`},
		{"circuit breakers of a workload and of all", []string{"breakers", "clear", "deploy/a", "--all"}, `unknown command "deploy/a" for "rehome breakers clear"`},
		{"dead letters of the future", []string{"get", "deadletters", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
		{
			"dead letters of an unknown stream", []string{"get", "deadletters", "--stream", "rehome.>"},
			`--stream: want the name of a stream such as REHOME_SCOPES, got "rehome.>"`,
		},
		{
			"a dead letter with the number 0", []string{"deadletters", "drop", "1", "0"},
			"want the number of a dead letter from `rehome get deadletters`, got \"0\"",
		},
		{"dead letters and all of them", []string{"deadletters", "drop", "--all", "1"}, `want numbers of dead letters or --all, got ["1"] and --all=true`},
		{"no dead letters to retry", []string{"deadletters", "retry"}, "want numbers of dead letters or --all, got [] and --all=false"},
		{
			"every single dead letter", []string{"deadletters", "retry", "--all"},
			"--all: want --since, --stream, or --by to select letters, or --yes for all letters",
		},
		{
			"a filter of numbers", []string{"deadletters", "drop", "--by", "PodLifeTime", "1"},
			"--since, --stream, --by, and --yes: want them with --all, got numbers",
		},
		{"unknown noun", []string{"get", "pods"}, `unknown command "pods" for "rehome get"`},
		{"nothing to explain", []string{"explain"}, "requires at least 1 arg(s), only received 0"},
		{"no workload to explain", []string{"explain", "workload", "api"}, `want workload KIND/NAME, such as workload deployment/api, got "api"`},
		{"a pod that is no workload", []string{"explain", "workload", "pod/api"}, `want workload KIND/NAME, such as workload deployment/api, got "pod/api"`},
		{"no pod to explain", []string{"explain", "pod"}, `want one TYPE NAME or TYPE/NAME, got "pod"`},
		{"a history of the future", []string{"explain", "pod", "b", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
		{"explanation by a missing policy", []string{"explain", "pod", "b", "--policy", "nope.yaml", "--store-dir", "none"},
			"policy: open nope.yaml: no such file or directory"},
		{"a request without a reason", []string{"move", "node", "n1"}, `required flag(s) "reason" not set`},
		{"a request with an empty reason", []string{"move", "node", "n1", "--reason", ""}, "--reason: want 1 to 500 characters, got 0"},
		{"a request for nothing", []string{"move", "pod", "--reason", "x"}, "want the name of a pod, got []"},
		{"a request for two nodes", []string{"move", "node", "a", "b", "--reason", "x"}, `want the name of a node, got ["a" "b"]`},
		{"a request for all pods", []string{"move", "pods", "-A", "--reason", "x"}, "--all-namespaces: want it with --selector"},
		{"a request for named pods with labels", []string{"move", "pod", "a", "-l", "b", "--reason", "x"}, "--selector: want it with pods and without names"},
		{"request by an unknown method", []string{"move", "node", "a", "--reason", "x", "--method", "drain"},
			`invalid argument "drain" for "--method" flag: want auto, evict, restart`},
		{"a request of a sender that is no name", []string{"evaluate", "--reason", "x", "--sender", "Me"},
			`--sender: want 1 to 63 of a-z, 0-9 and -, got "Me"`},
		{"a request that is tried too long", []string{"move", "node", "a", "--reason", "x", "--deadline", "25h"},
			"--deadline: want at most 24h0m0s, such as 30m, got 25h0m0s"},
		{"a dry run of a question", []string{"evaluate", "--reason", "x", "--dry-run"}, "unknown flag: --dry-run"},
		{"a request to cancel nothing", []string{"cancel", "--reason", "x"}, "accepts 1 arg(s), received 0"},
		{"unknown command of a group", []string{"policy", "chek", "a"}, `unknown command "chek" for "rehome policy"`},
		{"no file to check", []string{"policy", "check"}, "requires at least 1 arg(s), only received 0"},
		{"two policies to explain", []string{"policy", "explain", "a", "b"}, "accepts 1 arg(s), received 2"},
		{"types of events to list", []string{"schemas", "list", "delta"}, `unknown command "delta" for "rehome schemas list"`},
		{"no schema to print", []string{"schemas", "print"}, "accepts 1 arg(s), received 0"},
		{"a command of before", []string{"loops"}, "unknown command \"loops\" for \"rehome\"\n\nDid you mean this?\n\tget\n"},
		{"a time in the future", []string{"events", "--since", "-1h"}, "--since: want a duration such as 1h, got -1h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			_, err := execute(t, c.arguments...)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestOverrideExtensionNames(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                              `K_CE_OVERRIDES: want {"extensions": {"NAME": "VALUE"}}: unexpected end of JSON input`,
		`{"extensions": {"my-key": ""}}`: `K_CE_OVERRIDES: attribute "my-key": want lower-case letters and digits`,
		`{"extensions": {"id": "1"}}`:    `K_CE_OVERRIDES: attribute "id": want an extension, got a standard attribute`,
		`{"extensions": {"Team": "shop", "team": "cart"}}`: `K_CE_OVERRIDES: attribute "team": want it once, got it in different cases`,
	} {
		t.Setenv("K_CE_OVERRIDES", text)
		_, err := execute(t, "forward", "--to", "http://a")
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
