package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// said runs the command with arguments and standard input, and returns its output and its error, "" for none.
func said(t *testing.T, stdin string, arguments ...string) (out, err string) {
	t.Helper()
	out, _, failed := fed(t, stdin, arguments...)
	if failed != nil {
		err = failed.Error()
	}
	return out, err
}

// dialogue is a run of a command, with its complete output and its error.
type dialogue struct {
	name      string
	arguments []string
	stdin     string
	out, err  string
}

// converse runs a command as in each dialogue.
func converse(t *testing.T, command string, dialogues []dialogue) {
	t.Helper()
	for _, d := range dialogues {
		t.Run(d.name, func(t *testing.T) {
			out, err := said(t, d.stdin, append(strings.Fields(command), d.arguments...)...)
			if out != d.out || err != d.err {
				t.Errorf("got error %q and\n%s\nwant error %q and\n%s", err, out, d.err, d.out)
			}
		})
	}
}

const brokenProblems = `testdata/broken.yaml:3: maxNoOfPodsToEvictTotal: must not be negative, got -5
testdata/broken.yaml:6: profiles[0].pluginConfig[0].name: is not a plugin of this version of Rehome, ` +
	`got "RemovePodsViolatingNodeTaint"; did you mean RemovePodsViolatingNodeTaints?
testdata/broken.yaml:9: profiles[0].pluginConfig[1].args.excludedtaints: unknown field; did you mean excludedTaints?
`

func TestPolicyCheck(t *testing.T) {
	const right = "2 profiles, enabled: RemovePodsViolatingNodeTaints\n"
	converse(t, "policy check", []dialogue{
		{"a file that is right is one line", []string{"testdata/policy.yaml"}, "", "testdata/policy.yaml: " + right, ""},
		{
			"standard input is a file, too", []string{"-"}, "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\n",
			"stdin: no profile, nothing is enabled\n", "",
		},
		{
			"a file that works against the scheduler has a warning", []string{"-"},
			strings.Replace(filetest.Read(t, "../policy/testdata/good/HighNodeUtilization.yaml"), "MostAllocated", "LeastAllocated", 1),
			"stdin: 1 profile, enabled: HighNodeUtilization\n" +
				"  warning: profile default: HighNodeUtilization empties nodes that the scheduler fills again, because it prefers the least " +
				"allocated nodes; use the scoring strategy MostAllocated in the scheduler, and set scheduler.profile\n", "",
		},
		{
			"a file that is wrong is a line for each problem, and the others are checked all the same",
			[]string{"testdata/broken.yaml", "testdata/policy.yaml", "nope.yaml"}, "",
			brokenProblems + "testdata/policy.yaml: " + right + "nope.yaml: cannot be read: no such file or directory\n",
			"2 of 3 policy files invalid",
		},
		{"in JSON a file that is right is nothing", []string{"-o", "json", "testdata/policy.yaml"}, "", "", ""},
		{
			"in JSON a problem is an object", []string{"-o", "json", "-", "nope.yaml"}, "kind: DeschedulerPolicy\nrates: <\n",
			`{"file":"stdin","line":1,"field":"apiVersion","wrong":"is missing",` +
				`"right":"write apiVersion: descheduler/v1alpha2 or rehome.dev/v1alpha1"}
{"file":"stdin","line":2,"field":"rates","wrong":"unknown field","right":"did you mean rate?"}
{"file":"nope.yaml","wrong":"cannot be read: no such file or directory"}
`, "2 of 2 policy files invalid",
		},
	})
}

func TestExplainInvalidPolicy(t *testing.T) {
	converse(t, "policy explain", []dialogue{
		{"a file that is wrong", []string{"testdata/broken.yaml"}, "", "", strings.TrimSuffix(brokenProblems, "\n")},
		{"missing file", []string{"nope.yaml"}, "", "", "nope.yaml: cannot be read: no such file or directory"},
	})
}

func TestRunWithInvalidPolicy(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	if _, err := said(t, "", "run", "--policy", "testdata/broken.yaml", "--store-dir", store); err != strings.TrimSuffix(brokenProblems, "\n") {
		t.Errorf("got error %q, want %q", err, strings.TrimSuffix(brokenProblems, "\n"))
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("it began to work: there is a store")
	}
}

func TestPolicyConvert(t *testing.T) {
	const older = "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nignorePvcPods: true\nstrategies:\n" +
		"  PodLifeTime: {enabled: true, params: {podLifeTime: {maxPodLifeTimeSeconds: 60}}}\n"
	const body = `kind: DeschedulerPolicy
profiles:
  - name: default
    pluginConfig:
      - name: DefaultEvictor
        args:
          ignorePvcPods: true
      - name: PodLifeTime
        args:
          maxPodLifeTimeSeconds: 60
    plugins:
      deschedule:
        enabled: [PodLifeTime]
`
	converse(t, "policy convert", []dialogue{
		{"to our own version", []string{"-"}, older, "apiVersion: rehome.dev/v1alpha1\n" + body, ""},
		{
			"to the descheduler's", []string{"--to", "descheduler/v1alpha2", "-"}, older,
			"apiVersion: descheduler/v1alpha2\n" + body, "",
		},
		{
			"convert to an unknown version", []string{"--to", "v1", "-"}, older, "",
			`invalid argument "v1" for "--to" flag: want rehome.dev/v1alpha1, descheduler/v1alpha2`,
		},
		{
			"not to one that cannot say it", []string{"--to", "descheduler/v1alpha2", "-"},
			"apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\ndeltas: All\n", "",
			"stdin: deltas: is not part of descheduler/v1alpha2; convert to rehome.dev/v1alpha1",
		},
		{
			"not when it is wrong", []string{"testdata/broken.yaml"}, "", "",
			strings.TrimSuffix(brokenProblems, "\n"),
		},
	})
}
