package simulate_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/simulate/objects"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// podText is a pod as kubectl prints it, in about three kilobytes, with placeholders for number, node, workload, and
// namespace.
const podText = `- apiVersion: v1
  kind: Pod
  metadata:
    annotations:
      cni.example.com/podIP: 10.%[5]d.%[6]d.7/32
      prometheus.io/port: "9090"
      prometheus.io/scrape: "true"
    creationTimestamp: "2030-01-01T00:00:00Z"
    generateName: workload-%[3]d-5d4f8c7b9-
    labels:
      app: workload-%[3]d
      app.kubernetes.io/name: workload-%[3]d
      pod-template-hash: 5d4f8c7b9
      tier: web
    name: pod-%[1]d
    namespace: team-%[4]d
    ownerReferences:
    - apiVersion: apps/v1
      blockOwnerDeletion: true
      controller: true
      kind: %[7]s
      name: workload-%[3]d-5d4f8c7b9
      uid: 5b8f6a54-0000-4000-8000-%012[3]d
    resourceVersion: "%[1]d1"
    uid: 0c1e7e0e-0000-4000-8000-%012[1]d
  spec:
    containers:
    - args:
      - --config=/etc/server/config.yaml
      - --listen=:8080
      - --log-level=info
      env:
      - name: POD_NAME
        valueFrom:
          fieldRef:
            apiVersion: v1
            fieldPath: metadata.name
      - name: GOMEMLIMIT
        value: 200MiB
      image: registry.example.com/team/server:v1.27.3
      imagePullPolicy: IfNotPresent
      livenessProbe:
        failureThreshold: 3
        httpGet:
          path: /healthz
          port: 8080
          scheme: HTTP
        periodSeconds: 10
        successThreshold: 1
        timeoutSeconds: 1
      name: server
      ports:
      - containerPort: 8080
        name: http
        protocol: TCP
      resources:
        limits:
          memory: 256Mi
        requests:
          cpu: 100m
          memory: 128Mi
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: File
      volumeMounts:
      - mountPath: /var/run/secrets/kubernetes.io/serviceaccount
        name: kube-api-access-x7k2p
        readOnly: true
    dnsPolicy: ClusterFirst
    enableServiceLinks: true
    nodeName: worker-%04[2]d
    preemptionPolicy: PreemptLowerPriority
    priority: 0
    restartPolicy: Always
    schedulerName: default-scheduler
    securityContext: {}
    serviceAccount: default
    serviceAccountName: default
    terminationGracePeriodSeconds: 30
    tolerations:
    - effect: NoExecute
      key: node.kubernetes.io/not-ready
      operator: Exists
      tolerationSeconds: 300
    - effect: NoExecute
      key: node.kubernetes.io/unreachable
      operator: Exists
      tolerationSeconds: 300
    volumes:
    - name: kube-api-access-x7k2p
      projected:
        defaultMode: 420
        sources:
        - serviceAccountToken:
            expirationSeconds: 3607
            path: token
        - configMap:
            items:
            - key: ca.crt
              path: ca.crt
            name: kube-root-ca.crt
  status:
    conditions:
    - lastProbeTime: null
      lastTransitionTime: "2030-01-01T00:00:05Z"
      status: "True"
      type: Ready
    - lastProbeTime: null
      lastTransitionTime: "2030-01-01T00:00:02Z"
      status: "True"
      type: PodScheduled
    containerStatuses:
    - containerID: containerd://0c1e7e0e5b8f6a54
      image: registry.example.com/team/server:v1.27.3
      imageID: registry.example.com/team/server@sha256:0c1e7e0e5b8f6a54
      lastState: {}
      name: server
      ready: true
      restartCount: %[8]d
      started: true
      state:
        running:
          startedAt: "2030-01-01T00:00:04Z"
    hostIP: 192.168.1.7
    phase: %[9]s
    podIP: 10.%[5]d.%[6]d.7
    qosClass: Burstable
    startTime: "2030-01-01T00:00:02Z"
`

// clusterText returns a list of nodes and pods in YAML. Every tenth node is tainted, every twentieth pod belongs to a
// DaemonSet, and some pods have failed or were restarted often.
func clusterText(nodes, pods int) []byte {
	var b bytes.Buffer
	b.WriteString("apiVersion: v1\nitems:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "- apiVersion: v1\n  kind: Node\n  metadata:\n    labels:\n      kubernetes.io/hostname: worker-%04d\n"+
			"      topology.kubernetes.io/zone: zone-%d\n    name: worker-%04d\n    uid: 1a1e7e0e-0000-4000-8000-%012d\n  spec:\n", i, i%3, i, i)
		if i%10 == 0 {
			b.WriteString("    taints:\n    - effect: NoSchedule\n      key: maintenance\n      value: soon\n")
		} else {
			b.WriteString("    podCIDR: 10.0.0.0/24\n")
		}
		b.WriteString("  status:\n    allocatable:\n      cpu: \"16\"\n      memory: 64Gi\n      pods: \"110\"\n" +
			"    conditions:\n    - status: \"True\"\n      type: Ready\n")
	}
	for i := range pods {
		owner, phase, restarts := "ReplicaSet", "Running", i%7
		switch {
		case i%20 == 0:
			owner = "DaemonSet"
		case i%50 == 1:
			phase = "Failed"
		case i%50 == 2:
			restarts = 200
		}
		fmt.Fprintf(&b, podText, i, i%nodes, i/10, i/10%100, i/250%250, i%250, owner, restarts, phase)
	}
	b.WriteString("kind: List\nmetadata:\n  resourceVersion: \"\"\n")
	return b.Bytes()
}

// everything enables every strategy, with arguments that make it move something.
func everything(t testing.TB) policy.Policy {
	t.Helper()
	given := map[string]string{
		"RemovePodsHavingTooManyRestarts": "{podRestartThreshold: 100}",
		"RemovePodsViolatingNodeAffinity": "{nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}",
		"LowNodeUtilization":              "{thresholds: {pods: 10}, targetThresholds: {pods: 15}}",
		"HighNodeUtilization":             "{thresholds: {pods: 10}}",
		"PodLifeTime":                     "{maxPodLifeTimeSeconds: 86400, namespaces: {include: [team-1]}}",
	}
	var configs strings.Builder
	enabled := map[policy.Point][]string{}
	var known []policy.Strategy
	for _, f := range functions.All() {
		args, ok := given[f.Strategy.Name]
		if !ok {
			args = "{}"
		}
		fmt.Fprintf(&configs, "      - name: %s\n        args: %s\n", f.Strategy.Name, args)
		enabled[f.Strategy.Point] = append(enabled[f.Strategy.Point], f.Strategy.Name)
		known = append(known, f.Strategy)
	}
	text := "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n  - name: default\n    pluginConfig:\n" +
		configs.String() + "    plugins:\n"
	for _, point := range []policy.Point{policy.Deschedule, policy.Balance} {
		if len(enabled[point]) > 0 {
			text += fmt.Sprintf("      %s: {enabled: [%s]}\n", point, strings.Join(enabled[point], ", "))
		}
	}
	p, err := policy.Parse("everything.yaml", []byte(text), known)
	expect.Must(t, err)
	return p
}

// kinds returns the kinds that the tests read.
func kinds() []schema.GroupVersionKind {
	core := schema.GroupVersion{Version: "v1"}
	budgets := schema.GroupVersion{Group: "policy", Version: "v1"}
	return []schema.GroupVersionKind{
		core.WithKind("Node"), core.WithKind("Pod"), core.WithKind("Namespace"), budgets.WithKind("PodDisruptionBudget"),
	}
}

// BenchmarkSimulate measures a whole simulation except reading the file and writing the answer: 1,000 nodes and 20,000
// pods, in YAML as from kubectl, with every strategy. The target is 5 seconds on two cores. The YAML library alone
// takes longer: docs/decisions/0015-yaml-by-the-library.md.
func BenchmarkSimulate(b *testing.B) {
	text := clusterText(1000, 20000)
	p := everything(b)
	now := time.Date(2030, 1, 10, 0, 0, 0, 0, time.UTC)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		found, err := objects.Read([]objects.Source{{Name: "cluster.yaml", Data: text}}, kinds())
		expect.Must(b, err)
		b.ReportMetric(time.Since(began).Seconds(), "load-s/op")
		outcomes := map[schemas.Outcome]int{}
		err = simulate.Run(b.Context(), simulate.Config{
			Policy: p, Functions: functions.All(), Now: func() time.Time { return now },
		}, found.Objects, func(verdicts []schemas.Verdict) error {
			for _, v := range verdicts {
				outcomes[v.Outcome]++
			}
			return nil
		})
		if err != nil || len(found.Objects) != 21000 || outcomes[schemas.Evicted] < 1800 || outcomes[schemas.Rejected] < 1000 {
			b.Fatalf("%d objects, outcomes %v, error %v", len(found.Objects), outcomes, err)
		}
	}
}
