package cluster

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/cluster/supervisor"
)

//go:embed auditpolicy.yaml
var auditPolicy []byte

// The files in a cluster's directory.
const (
	etcdDir             = "etcd"
	kubeconfigFile      = "kubeconfig"
	tokensFile          = "tokens.csv"
	accountKeyFile      = "service-account.key"
	certificateFile     = "apiserver.crt"
	certificateKeyFile  = "apiserver.key"
	auditPolicyFile     = "audit-policy.yaml"
	auditLogFile        = "audit.log"
	schedulerConfigFile = "scheduler.json"
	kwokConfigFile      = "kwok.json"
)

const (
	// clientQPS is so high that no client limit slows a component down.
	clientQPS = 5000
	// kwokParallelism is the number of nodes or pods that kwok changes at the same time.
	kwokParallelism = 16
	// leaseSeconds is the duration of a node's lease. kwok renews it after a quarter of this time. It is five times the default,
	// so a thousand idle nodes cost twenty writes per second, and a busy machine does not lose nodes.
	leaseSeconds = 200
	// graceSeconds is how long after the last renewal a node counts as lost.
	graceSeconds = 300
)

// components are the command lines of the processes of a cluster.
type components struct {
	dir      string
	set      binaries.Set
	options  Options
	etcd     port
	etcdPeer port
	api      port
	kubelet  int // port of kwok, with Options.ForwardTo
}

// file returns the path of a file in the cluster directory.
func (c components) file(name string) string { return filepath.Join(c.dir, name) }

// kubeconfig returns the path of a component's kubeconfig.
func (c components) kubeconfig(component string) string { return c.file(component + ".kubeconfig") }

// process returns a command line. The environment is empty, so no settings of the user reach the components.
func (c components) process(name string, args ...string) supervisor.Process {
	return supervisor.Process{
		Name: name,
		Path: c.set.Path(name),
		Args: args,
		Env:  []string{"HOME=" + c.dir, "TMPDIR=" + c.dir, "PATH=" + os.Getenv("PATH")},
		Log:  filepath.Join(c.options.LogDir, name+".log"),
	}
}

func (c components) etcdProcess() supervisor.Process {
	client, peer := "http://"+c.etcd.address(), "http://"+c.etcdPeer.address()
	return c.process(binaries.Etcd,
		"--data-dir="+c.file(etcdDir),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer,
		"--socket-reuse-port=true",
		fmt.Sprintf("--unsafe-no-fsync=%t", !c.options.Durable),
		"--quota-backend-bytes=8000000000",
		"--log-level=warn",
	)
}

func (c components) apiServerProcess() supervisor.Process {
	args := []string{
		"--etcd-servers=http://" + c.etcd.address(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // The default would refuse a loopback address.
		fmt.Sprint("--secure-port=", c.api.number),
		"--permit-port-sharing=true",
		"--tls-cert-file=" + c.file(certificateFile),
		"--tls-private-key-file=" + c.file(certificateKeyFile),
		"--authorization-mode=RBAC",
		"--token-auth-file=" + c.file(tokensFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file(accountKeyFile),
		"--service-account-signing-key-file=" + c.file(accountKeyFile),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1000",
		"--audit-policy-file=" + c.file(auditPolicyFile),
		"--audit-log-path=" + c.file(auditLogFile),
		"--audit-log-mode=blocking", // Every request with a response is in the log.
		"--audit-log-maxsize=1000000",
	}
	args = append(args, c.options.featureFlags()...)
	return c.process(binaries.APIServer, append(args, c.options.APIServerFlags...)...)
}

func (c components) controllerManagerProcess() supervisor.Process {
	args := []string{
		"--kubeconfig=" + c.kubeconfig(binaries.ControllerManager),
		"--leader-elect=false",
		"--secure-port=0",
		fmt.Sprint("--kube-api-qps=", clientQPS),
		fmt.Sprint("--kube-api-burst=", clientQPS),
		"--kube-api-content-type=application/vnd.kubernetes.protobuf",
		"--service-account-private-key-file=" + c.file(accountKeyFile),
		"--root-ca-file=" + c.file(certificateFile),
		"--controllers=*,-nodeipam",
		"--concurrent-replicaset-syncs=20",
		"--concurrent-deployment-syncs=20",
		"--node-monitor-period=1s",
		fmt.Sprintf("--node-monitor-grace-period=%ds", graceSeconds),
		"--horizontal-pod-autoscaler-sync-period=1s",
		"--pvclaimbinder-sync-period=1s",
	}
	return c.process(binaries.ControllerManager, append(args, c.options.featureFlags()...)...)
}

func (c components) schedulerProcess() supervisor.Process {
	args := []string{"--config=" + c.file(schedulerConfigFile), "--secure-port=0"}
	return c.process(binaries.Scheduler, append(args, c.options.featureFlags()...)...)
}

func (c components) kwokProcess() supervisor.Process {
	args := []string{
		"--kubeconfig=" + c.kubeconfig(binaries.Kwok),
		"--config=" + c.set.Path(binaries.Stages),
		"--config=" + c.file(kwokConfigFile),
		"--manage-all-nodes=true",
		fmt.Sprint("--node-lease-duration-seconds=", leaseSeconds),
	}
	if c.options.ForwardTo != "" { // the API server connects to each node's kubelet, which is kwok
		args = append(args, "--node-ip=127.0.0.1", fmt.Sprint("--node-port=", c.kubelet), "--server-address="+net.JoinHostPort("127.0.0.1", fmt.Sprint(c.kubelet)),
			"--tls-cert-file="+c.file(certificateFile), "--tls-private-key-file="+c.file(certificateKeyFile))
	}
	return c.process(binaries.Kwok, args...)
}

// writeFiles writes the files of the command lines.
func (c components) writeFiles(id identities) error {
	if err := os.WriteFile(c.file(auditPolicyFile), auditPolicy, 0o644); err != nil {
		return err
	}
	if err := c.writeConfigs(); err != nil {
		return err
	}
	for path, user := range map[string]string{
		c.file(kubeconfigFile):                   adminUser,
		c.kubeconfig(binaries.ControllerManager): ControllerManagerUser,
		c.kubeconfig(binaries.Scheduler):         schedulerUser,
		c.kubeconfig(binaries.Kwok):              kwokUser,
	} {
		if err := id.writeKubeconfig(path, user); err != nil {
			return err
		}
	}
	return nil
}

// writeConfigs writes settings of the scheduler and kwok that have no flags.
func (c components) writeConfigs() error {
	scheduler := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1",
		"kind":       "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{
			"kubeconfig":  c.kubeconfig(binaries.Scheduler),
			"qps":         clientQPS,
			"burst":       clientQPS,
			"contentType": "application/vnd.kubernetes.protobuf",
		},
		"leaderElection":           map[string]any{"leaderElect": false},
		"podInitialBackoffSeconds": 1,
		"podMaxBackoffSeconds":     2,
	}
	if strategy := c.options.ScoringStrategy; strategy != "" {
		scheduler["profiles"] = []any{map[string]any{
			"schedulerName": "default-scheduler",
			"pluginConfig": []any{map[string]any{
				"name": "NodeResourcesFit",
				"args": map[string]any{"scoringStrategy": map[string]any{
					"type":      strategy,
					"resources": []any{map[string]any{"name": "cpu", "weight": 1}, map[string]any{"name": "memory", "weight": 1}},
				}},
			}},
		}}
	}
	kwok := map[string]any{
		"apiVersion": "config.kwok.x-k8s.io/v1alpha1",
		"kind":       "KwokConfiguration",
		"options": map[string]any{
			"podPlayStageParallelism":  kwokParallelism,
			"nodePlayStageParallelism": kwokParallelism,
			"nodeLeaseParallelism":     kwokParallelism,
			"enableDebuggingHandlers":  c.options.ForwardTo != "", // port forwarding is one of them
		},
	}
	forward, err := c.forward()
	if err != nil {
		return err
	}
	for name, configs := range map[string][]any{schedulerConfigFile: {scheduler}, kwokConfigFile: append(forward, kwok)} {
		var text []byte
		for _, config := range configs { // JSON documents are YAML documents
			one, err := json.Marshal(config)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			text = append(append(text, one...), "\n---\n"...)
		}
		text = bytes.TrimSuffix(text, []byte("\n---\n"))
		if err := os.WriteFile(c.file(name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// forward is the configuration of kwok for port forwarding.
func (c components) forward() ([]any, error) {
	if c.options.ForwardTo == "" {
		return nil, nil
	}
	host, text, err := net.SplitHostPort(c.options.ForwardTo)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	return []any{map[string]any{
		"apiVersion": "kwok.x-k8s.io/v1alpha1",
		"kind":       "ClusterPortForward",
		"metadata":   map[string]any{"name": "all"},
		"spec": map[string]any{"forwards": []any{map[string]any{
			"target": map[string]any{"port": number, "address": host},
		}}},
	}}, nil
}
