package cli

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// steady replaces the parts of an output that differ from run to run.
var steady = []struct {
	part *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2030-01-02T03:04:05Z"},
	{regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}`), "03:04:05.000"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "0196f0de-1111-7222-8333-444455556666"},
	{regexp.MustCompile(`[0-9a-f]{32}-[0-9a-f]{16}`), "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"},
	{regexp.MustCompile(`(?m)^(  [a-z.]+: )[A-Za-z0-9+/=]{40,}$`), "${1}aaaa"},
	{regexp.MustCompile(`number \d{16}`), "number 1000000000000000"},
	{regexp.MustCompile(`"[a-z2-7]{26}"`), `"aaaaaaaaaaaaaaaaaaaaaaaaaa"`}, // ID of an event
	{regexp.MustCompile(`\bgo1\.\S+ \S+`), "go1.26.0 linux/amd64"},
}

// TestCommandOutput compares the output of commands with golden files, in each format.
func TestCommandOutput(t *testing.T) {
	t.Setenv("REHOME_CLUSTER", "test")
	request := func(t *testing.T) string { // the bus, and receipts as an answer
		bustest.AnswerRequests(t, busOf(t), func(r schemas.Request) []schemas.Payload {
			return []schemas.Payload{receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted), receipt(r, schemas.RequestFinished, schemas.ReceiptDone)}
		})
		return ""
	}
	for _, c := range []struct {
		command, arguments string // $FILE is what prepare returns
		prepare            func(t *testing.T) (file string)
		fails              bool
	}{
		{"events", "", func(t *testing.T) string {
			b := busOf(t)
			for _, e := range schematest.Examples(t) {
				if e.Name == "verdict" || e.Name == "delta" {
					publishAll(t, b, e.Event)
				}
			}
			return ""
		}, false},
		{"ui", "--no-open --server http://127.0.0.1:9", nil, false},
		{"move", "node n1 --reason fan --name r", request, false},
		{"drain", "n1 --reason fan --name r", request, false},
		{"cordon", "n1 --reason fan --name r", request, false},
		{"uncordon", "n1 --reason fan --name r", request, false},
		{"evaluate", "PodLifeTime --reason fan --name r", request, false},
		{"cancel", "drain --reason fan --name r", request, false},
		{"breakers clear", "--all", clearing, false},
		{"deadletters retry", "2", func(t *testing.T) string { deadBus(t); return "" }, false},
		{"deadletters drop", "2", func(t *testing.T) string { deadBus(t); return "" }, false},
		{"simulate", "--policy testdata/policy.yaml --objects $FILE", objectFile, false},
		{"policy check", "testdata/broken.yaml", nil, true},
		{"policy convert", "testdata/policy.yaml", nil, false},
		{"policy explain", "testdata/policy.yaml", nil, false},
		{"schemas list", "", nil, false},
		{"schemas validate", "testdata/policy.yaml", nil, true},
		{"forward", "--add --name audit --type verdict", func(t *testing.T) string { busOf(t); return "" }, false},
		{"ready", "$FILE", unready, true},
		{"auth init", "$FILE", func(t *testing.T) string { return t.TempDir() }, false},
		{"auth secrets", "$FILE", given, false},
		{"settings", "", nil, false},
		{"version", "", nil, false},
	} {
		for _, format := range formatsOf(commandNamed(t, strings.Fields(c.command)...)) {
			t.Run(c.command+"/"+format, func(t *testing.T) {
				file := ""
				if c.prepare != nil {
					file = c.prepare(t)
				}
				compareOutput(t, c.command, strings.ReplaceAll(c.arguments, "$FILE", file), format, file, c.fails)
			})
		}
	}
}

// TestOnceOutput evicts a pod of a real cluster in a dry run, and explains its workload.
func TestOnceOutput(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	t.Setenv("KUBECONFIG", c.Kubeconfig())
	t.Setenv("REHOME_STORE_DIR", t.TempDir())
	labels := map[string]string{"app": "db"}
	nodes, err := c.AddNodes(t.Context(), 1)
	if err == nil {
		_, err = c.Client().AppsV1().StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "db"},
			Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}},
		}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = c.WaitPods(t.Context(), "default", "app=db", "to run", func(pods []*corev1.Pod) bool {
			return len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning
		})
	}
	if err == nil {
		_, err = c.AddNodes(t.Context(), 1)
	}
	if err == nil {
		var node *corev1.Node
		node, err = c.Client().CoreV1().Nodes().Get(t.Context(), nodes[0], metav1.GetOptions{})
		if err == nil {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "gone", Effect: corev1.TaintEffectNoSchedule})
			_, err = c.Client().CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		}
	}
	expect.Must(t, err)
	for _, format := range []string{"txt", "json"} {
		compareOutput(t, "once", "--dry-run --policy testdata/policy.yaml", format, "", false)
	}
}

// clearing returns a bus with a workload circuit breaker, and an actuator that clears it.
func clearing(t *testing.T) string {
	b := busOf(t, breakerOf("api", time.Now()))
	a := actuator.New(actuator.Config{
		Bus: b, Ledger: b.Ledger(), Policy: policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}, Source: "/test",
		Log: slog.New(slog.DiscardHandler),
	})
	expect.Background(t, a.Lead)
	return ""
}

func objectFile(t *testing.T) string {
	return filetest.New(t, "objects.yaml", oneNode+otherNode)
}

// unready returns the URL of a process that is not ready.
func unready(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no bus\nno API server", http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func compareOutput(t *testing.T, command, arguments, format, file string, fails bool) {
	t.Helper()
	words := slices.Concat(strings.Fields(command), strings.Fields(arguments))
	if format != "txt" {
		words = append(words, "-o", format)
	}
	got, err := execute(t, words...)
	if (err != nil) != fails {
		t.Fatalf("%q: error %v, output\n%s", words, err, got)
	}
	if fails && format == "txt" {
		got += err.Error() + "\n"
	}
	if file != "" {
		got = strings.ReplaceAll(got, file, "FILE")
	}
	for _, s := range steady {
		got = s.part.ReplaceAllString(got, s.by)
	}
	got = strings.ReplaceAll(strings.ReplaceAll(got, `"requester":"`+requester(t)+`"`, `"requester":"robin"`), ", by "+requester(t), ", by robin")
	golden(t, goldenName(command)+"."+format, got)
}

// goldenName returns the name of the golden files of a command, without the format.
func goldenName(command string) string {
	if group, name, is := strings.Cut(command, " "); is {
		return group + "/" + name
	}
	return command + "/" + command
}

// formatsOf returns the formats of a command: txt, and the values of its flag -o.
func formatsOf(c *cobra.Command) []string {
	formats := []string{"txt"}
	if complete, is := c.GetFlagCompletionFunc("output"); is {
		values, _ := complete(c, nil, "")
		for _, v := range values {
			if v != "" {
				formats = append(formats, v)
			}
		}
	}
	return formats
}

// TestGoldenFiles finds commands without a golden file for one of their formats. docs/cli.md has the help of all commands.
func TestGoldenFiles(t *testing.T) {
	names := map[string][]string{ // the output of other commands has the name of the command
		"explain": {"explain/pod", "explain/node", "explain/workload"},
	}
	published := []string{"policy schema", "schemas print"} // other tests compare their output with the files in the repository
	printing := []string{"forward", "ready"}                // of the commands that run
	for _, top := range newRoot().Commands() {
		each(top, func(c *cobra.Command) {
			command := strings.TrimPrefix(c.CommandPath(), "rehome ")
			formats := formatsOf(c)
			switch {
			case c.HasSubCommands(), slices.Contains(published, command):
				return
			case top.GroupID == "run" && len(formats) == 1 && !slices.Contains(printing, command): // they serve until a signal, and only log
				return
			}
			files := names[command]
			if files == nil {
				files = []string{goldenName(command)}
			}
			for _, file := range files {
				for _, format := range formats {
					if _, err := os.Stat("testdata/golden/" + file + "." + format); err != nil {
						t.Errorf("rehome %s: add a case to TestCommandOutput: %v", command, err)
					}
				}
			}
		})
	}
}
