package cli

import (
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// byLoad returns a node that is nearly empty by requests but not by load.
const byLoad = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: busy}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}}
- {apiVersion: v1, kind: Node, metadata: {name: idle}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}}
- apiVersion: v1
  kind: Pod
  metadata: {namespace: shop, name: a, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: shop, uid: u}]}
  spec: {nodeName: busy, containers: [{name: main, image: shop}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {namespace: shop, name: b, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: shop, uid: u}]}
  spec: {nodeName: busy, containers: [{name: main, image: shop}]}
  status: {phase: Running}
- {apiVersion: metrics.k8s.io/v1beta1, kind: NodeMetrics, metadata: {name: busy}, usage: {cpu: 3500m, memory: 1Gi}}
- {apiVersion: metrics.k8s.io/v1beta1, kind: NodeMetrics, metadata: {name: idle}, usage: {cpu: 100m, memory: 1Gi}}
- {apiVersion: metrics.k8s.io/v1beta1, kind: PodMetrics, metadata: {namespace: shop, name: a}, containers: [{name: main, usage: {cpu: "2", memory: 1Mi}}]}
- {apiVersion: metrics.k8s.io/v1beta1, kind: PodMetrics, metadata: {namespace: shop, name: b}, containers: [{name: main, usage: {cpu: "1", memory: 1Mi}}]}
`

const byLoadPolicy = `
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
metricsProviders: [{source: KubernetesMetrics}]
profiles:
  - name: default
    pluginConfig:
      - name: LowNodeUtilization
        args: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, metricsUtilization: {source: KubernetesMetrics}}
    plugins: {balance: {enabled: [LowNodeUtilization]}}
`

func TestSimulateLoad(t *testing.T) {
	policy := filetest.New(t, "policy.yaml", byLoadPolicy)
	for _, c := range []struct {
		name, objects string
		want          string
	}{
		{"one of two pods leaves the busy node", byLoad, "shop b busy LowNodeUtilization evicted"},
		{"a node with an unknown load is left out", strings.Replace(byLoad, "NodeMetrics, metadata: {name: idle}", "NodeMetrics, metadata: {name: other}", 1), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, notes, err := simulated(t, c.objects, nil, "--policy", policy, "--objects", "-", "--now", "2030-01-01T00:00:00Z")
			expect.Must(t, err)
			var got []string
			for line := range strings.Lines(out) {
				if f := strings.Fields(line); len(f) > 5 && f[0] == "shop" {
					got = append(got, strings.Join(f[:5], " "))
				}
			}
			if strings.Join(got, "\n") != c.want || notes != "" {
				t.Errorf("got %q and the notes %q, want %q\n%s", got, notes, c.want, out)
			}
		})
	}
}
