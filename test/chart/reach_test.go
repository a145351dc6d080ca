package chart

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// TestReachFromOutside installs the chart, and uses commands with a kubeconfig alone. kwok forwards ports of the pod to a process with
// the arguments, the settings, the policy, and the service account of the pod.
func TestReachFromOutside(t *testing.T) {
	address := expect.Value(t, program.FreeAddress)
	c := clustertest.New(t, cluster.Options{ForwardTo: address})
	nodes, err := c.AddNodes(t.Context(), 3)
	if err == nil {
		_, err = c.AddDeployment(t.Context(), "shop", "api", 6)
	}
	if err == nil {
		err = c.WaitReady(t.Context(), "shop", "api")
	}
	expect.Must(t, err)
	must(t, helm(t, "install", "rehome", chart, "-n", "rehome", "--create-namespace", "--wait", "--timeout", "2m", "--kubeconfig", c.Kubeconfig()))
	pod := startPod(t, c, address)
	pods, err := c.Client().CoreV1().Pods("rehome").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("got %v, %v, want one pod of Rehome", pods, err)
	}
	// The drain moves the pods of a node without Rehome.
	node := nodes[slices.IndexFunc(nodes, func(n string) bool { return n != pods.Items[0].Spec.NodeName })]

	home := t.TempDir()
	limited, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := func(arguments ...string) *exec.Cmd {
		k := exec.CommandContext(limited, expect.Value(t, program.Build), arguments...)
		k.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + c.Kubeconfig()}
		return k
	}
	if got := must(t, command("status")); !strings.HasPrefix(got, "no move in flight, no workload circuit breaker is open") {
		t.Errorf("status: got %s", got)
	}
	var events program.Log
	follow := command("events", "-f", "--type", "verdict")
	follow.Stdout, follow.Stderr = &events, &events
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = follow.Process.Kill() }()
	drained := must(t, command("drain", node, "--reason", "its fan is replaced"))
	result := regexp.MustCompile(`(?m)^request http/cli-\w+ finished: Done: node ` + node + ` is drained: 2 pods have left, 0 stay$`)
	if !strings.Contains(drained, "node "+node+": Draining, ") || !result.MatchString(drained) {
		t.Errorf("drain: got %s", drained)
	}
	expect.EventuallyWithState(t, "both evictions are printed", func() (bool, string) {
		return strings.Count(events.String(), "evicted from "+node) == 2, "events: " + events.String() + pod.Log.String()
	})
	expect.EventuallyWithState(t, "the maintenance is listed", func() (bool, string) { // the picture of the API follows the receipt
		got := must(t, command("get", "maintenances"))
		return strings.Contains(got, "node/"+node), "get maintenances: " + got
	})
	must(t, command("uncordon", node, "--reason", "the fan is new"))

	var page program.Log
	ui := command("ui", "--no-open")
	ui.Stdout, ui.Stderr = &page, &page
	if err := ui.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ui.Process.Kill() }()
	var at []string
	expect.EventuallyWithState(t, "the address of the page is printed", func() (bool, string) {
		at = regexp.MustCompile(`Rehome is at (http://127.0.0.1:\d+/)\n`).FindStringSubmatch(page.String())
		return at != nil, "ui: " + page.String()
	})
	answer, err := http.Get(at[1])
	expect.Must(t, err)
	defer func() { _ = answer.Body.Close() }()
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/html") {
		t.Errorf("the page: status %d, type %s", answer.StatusCode, kind)
	}
}

// startPod starts what the pod of the release would run, and waits until it is ready.
func startPod(t *testing.T, c *cluster.Cluster, api string) *program.Program {
	t.Helper()
	d, err := c.Client().AppsV1().Deployments("rehome").Get(t.Context(), "rehome", metav1.GetOptions{})
	expect.Must(t, err)
	dir := filetest.ShortDir(t)
	spec := d.Spec.Template.Spec
	policy := filepath.Join(dir, "policy.yaml")
	for _, v := range spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		m, err := c.Client().CoreV1().ConfigMaps("rehome").Get(t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
		if err == nil && m.Data["policy.yaml"] != "" {
			err = os.WriteFile(policy, []byte(m.Data["policy.yaml"]), 0o600)
		}
		expect.Must(t, err)
	}
	kubeconfig, err := c.AccountKubeconfig(t.Context(), dir, "rehome", spec.ServiceAccountName)
	expect.Must(t, err)
	environment := []string{"REHOME_NAMESPACE=rehome"}
	for _, v := range spec.Containers[0].Env {
		if v.Name != "REHOME_HTTP_ADDRESS" {
			environment = append(environment, v.Name+"="+v.Value)
		}
	}
	environment = append(environment, "REHOME_POLICY="+policy, "REHOME_STORE_DIR="+dir, "REHOME_API_LOCAL="+api,
		"REHOME_KUBECONFIG="+kubeconfig)
	p := programtest.Start(t, expect.Value(t, program.Build), spec.Containers[0].Args, environment)
	programtest.Ready(t, p)
	return p
}
