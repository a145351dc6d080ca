package chart

import (
	"strings"
	"testing"
)

// TestContradictoryValues shows every message: each names the values and what would be right.
func TestContradictoryValues(t *testing.T) {
	for rule, c := range map[string]struct {
		set  string // as --set takes it; as --set-json where it begins with a brace
		want string
	}{
		"distributed without a bus": {"mode=distributed",
			"mode: distributed needs nats.enabled, or nats.url for external servers; got neither"},
		"distributed as a CronJob": {"kind=CronJob,mode=distributed,nats.enabled=true",
			"mode: want all-in-one with kind CronJob, which runs all roles in one process, got distributed"},
		"distributed with a schedule": {`mode=distributed,nats.enabled=true,schedule=* * * * *`,
			"mode: want all-in-one with kind CronJob, which runs all roles in one process, got distributed; " +
				"the kind is CronJob because of schedule"},
		"distributed with replicas of everything": {"mode=distributed,nats.enabled=true,replicas=2",
			"replicas: in the mode distributed set the replicas of each role, such as watcher.replicas; got replicas: 2"},
		"a dispatcher in the process": {"dispatcher.enabled=true",
			"dispatcher.enabled: only for the mode distributed; in the mode all-in-one the process has a dispatcher"},
		"two places for NATS": {"nats.enabled=true,nats.url=tls://nats:4222",
			"nats: want enabled for servers of this release, or url for external servers; got both, url tls://nats:4222"},
		"NATS for a CronJob": {"kind=CronJob,nats.enabled=true",
			"nats: kind CronJob has no bus; want neither nats.enabled nor nats.url"},
		"invalid address": {"nats.url=nats:4222",
			`nats.url: want addresses such as tls://nats.nats.svc:4222, got "nats:4222"`},
		"own servers with credentials of others": {"nats.enabled=true,nats.login=creds",
			"nats.login, nats.ca and nats.clientCertificate: only for external servers; " +
				"the servers of the chart need nkey, true, and true"},
		"more replicas than servers": {"nats.enabled=true,nats.replicas=5",
			"nats.replicas: want 1 or 3 with nats.enabled, which runs three servers; got 5"},
		"persistence without a bus inside": {"nats.enabled=true,persistence.enabled=true",
			"persistence.enabled: only for kind Deployment without nats, which has an embedded bus"},
		"persistence of a Job": {"kind=Job,persistence.enabled=true",
			"persistence.enabled: only for kind Deployment without nats, which has an embedded bus"},
		"files that two would share": {"replicas=2,persistence.enabled=true",
			"replicas: want 1 with persistence.enabled, because only one process can open the files of the bus, got 2; " +
				"without persistence each replica has a bus, and with nats they share one"},
		"requests to a standby": {"replicas=2,requests.enabled=true",
			"requests.enabled: want replicas: 1, or nats, which the replicas share; got replicas: 2; " +
				"a standby would accept requests on its own bus and not process them until it leads"},
		"two autoscalers": {"mode=distributed,nats.enabled=true,keda.enabled=true,functions.autoscaling.enabled=true",
			"functions.autoscaling.enabled and keda.enabled: want one of them, got both, which would undo each other's changes"},
		"an autoscaler of nothing": {"functions.autoscaling.enabled=true",
			"functions.autoscaling.enabled and keda.enabled: only for the mode distributed, " +
				"where functions have a Deployment"},
		"KEDA without its source": {"mode=distributed,nats.url=tls://nats:4222,keda.enabled=true",
			"keda.enabled: want nats.enabled, whose servers report the waiting scopes; for external servers create your own ScaledObject"},
		"cert-manager without a Secret to fill": {"certManager.issuer.name=ca",
			"certManager.issuer.name: want metrics.tls files, or requests.enabled with requests.tls files, so that there is a Secret to fill; " +
				"got neither"},
		"cert-manager with one Secret for both": {"certManager.issuer.name=ca,metrics.tls=files,metrics.tlsSecret=a,requests.enabled=true," +
			"requests.tls=files,requests.tlsSecret=a",
			"certManager.issuer.name: want different Secrets in metrics.tlsSecret and requests.tlsSecret, got a twice"},
		"Knative with nothing to do": {"knative.enabled=true",
			"knative.strategies: want the strategies for Knative, such as [RemoveDuplicates], got none"},
		"Knative for a Job": {"kind=Job,knative.enabled=true,knative.strategies={PodLifeTime}",
			"knative.enabled: kind Job calls no external functions; want kind Deployment"},
		"unknown strategy for Knative": {"knative.enabled=true,knative.strategies={Request}",
			"knative.strategies: want some of RemovePodsViolatingNodeTaints, RemovePodsHavingTooManyRestarts, PodLifeTime, " +
				"RemoveFailedPods, RemoveDuplicates, RemovePodsViolatingInterPodAntiAffinity, RemovePodsViolatingNodeAffinity, " +
				"RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization, HighNodeUtilization, got Request"},
		"unknown strategy": {"mode=distributed,nats.enabled=true,functions.strategies={Sort}",
			"functions.strategies: want some of RemovePodsViolatingNodeTaints, RemovePodsHavingTooManyRestarts, PodLifeTime, " +
				"RemoveFailedPods, RemoveDuplicates, RemovePodsViolatingInterPodAntiAffinity, RemovePodsViolatingNodeAffinity, " +
				"RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization, HighNodeUtilization, Request, got Sort"},
		"a role as a strategy": {"mode=distributed,nats.enabled=true,functions.strategies={Request,Maintenance}",
			"functions.strategies: want some of RemovePodsViolatingNodeTaints, RemovePodsHavingTooManyRestarts, PodLifeTime, " +
				"RemoveFailedPods, RemoveDuplicates, RemovePodsViolatingInterPodAntiAffinity, RemovePodsViolatingNodeAffinity, " +
				"RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization, HighNodeUtilization, Request, got Maintenance"},
		"functions without a dispatcher": {`{"mode":"distributed","nats":{"enabled":true},"policyAdditions":{"functions":[` +
			`{"name":"PodLifeTime","http":{"url":"http://a"}},{"name":"RemoveDuplicates","nats":{"subject":"a"}}]}}`,
			"dispatcher.enabled: want true with functions in the policy, PodLifeTime, RemoveDuplicates, " +
				"because only the dispatcher calls them in the mode distributed; got false"},
		"functions with nothing to answer": {"mode=distributed,nats.enabled=true,functions.strategies={PodLifeTime},knative.enabled=true," +
			"knative.strategies={PodLifeTime}",
			"functions.strategies: want one at least that is not asked elsewhere, got PodLifeTime; the functions of the policy and " +
				"knative.strategies are PodLifeTime, and without a name rehome functions would answer all"},
		"functions with nothing to answer, by the policy": {`{"mode":"distributed","nats":{"enabled":true},"dispatcher":{"enabled":true},` +
			`"functions":{"strategies":["PodLifeTime"]},"policyAdditions":{"functions":[{"name":"PodLifeTime","http":{"url":"http://a"}}]}}`,
			"functions.strategies: want one at least that is not asked elsewhere, got PodLifeTime; the functions of the policy and " +
				"knative.strategies are PodLifeTime, and without a name rehome functions would answer all"},
		"files of nobody": {"metrics.tls=files",
			"metrics.tlsSecret: want the Secret with tls.crt and tls.key, because metrics.tls is files; got none"},
		"unused files": {"metrics.tlsSecret=rehome-http",
			"metrics.tls: want files with metrics.tlsSecret, got off"},
		"tokens in the open": {"metrics.auth=true",
			"metrics.auth: tokens need TLS: want metrics.tls self-signed or files, got off"},
		"profiles in the open": {"metrics.tls=self-signed,metrics.profiles=true",
			"metrics.profiles: want metrics.auth, because profiles show the memory of the process; got off"},
		"HTTP/2 in the open": {"metrics.http2=true",
			"metrics.http2: needs TLS: want metrics.tls self-signed or files, or requests.enabled; got off and false"},
		"requests to a Job": {"kind=Job,requests.enabled=true",
			"requests.enabled: kind Job exits and takes no requests; want kind Deployment"},
		"requests without a certificate": {"requests.tls=files",
			"requests.tlsSecret: want the Secret with tls.crt and tls.key, because requests.tls is files; got none"},
		"the image of the descheduler": {"image.repository=mirror.example.com/descheduler/descheduler",
			"image.repository: mirror.example.com/descheduler/descheduler is the image of the descheduler; want " +
				"ghcr.io/rehome-dev/rehome or your mirror, and its image.tag"},
		"a budget that wants two things": {"podDisruptionBudget.enabled=true,podDisruptionBudget.minAvailable=1,podDisruptionBudget.maxUnavailable=1",
			"podDisruptionBudget: want minAvailable or maxUnavailable, got both, 1 and 1"},
		"a lease that is too short": {"leaderElection.leaseDuration=2s", "leaderElection.leaseDuration: want at least 3s, got 2s"},
		"a lease that is no duration": {"leaderElection.leaseDuration=137 s",
			`leaderElection.leaseDuration: want a duration such as 90s, 15m or 1h30m, got "137 s"`},
		"roles without names for their accounts": {"mode=distributed,nats.enabled=true,serviceAccount.create=false",
			"serviceAccount.name: the mode distributed needs a ServiceAccount for each role, NAME-watcher and so on; " +
				"got serviceAccount.create off and no name"},
		"a probe of a socket": {"livenessProbe.httpGet=null,livenessProbe.tcpSocket.port=10258",
			"livenessProbe: want httpGet, whose port and scheme the chart sets, or exec; got tcpSocket or grpc"},
		"a policy that does nothing": {"deschedulerPolicy.nodeSelector=zone=a",
			"deschedulerPolicy: want profiles in a policy of descheduler/v1alpha2, got none; " +
				"Rehome would move nothing, because the chart does not add its default policy to yours"},
		"an old policy that does nothing": {`{"deschedulerPolicyAPIVersion":"descheduler/v1alpha1","deschedulerPolicy":{"nodeSelector":"zone=a"}}`,
			"deschedulerPolicy: want strategies in a policy of descheduler/v1alpha1, got none; " +
				"Rehome would move nothing, because the chart does not add its default policy to yours"},
		"a template that makes no YAML": {`{"deschedulerPolicy":{"profiles":[],"nodeSelector":"{{ printf \"%c\" 39 }}"}}`,
			"deschedulerPolicy: it is no YAML any more after tpl: error converting YAML to JSON: yaml: line 2: found unexpected end of stream"},
		"newer keys in an old policy": {`{"deschedulerPolicyAPIVersion":"descheduler/v1alpha1","deschedulerPolicy":{"strategies":{}},` +
			`"policyAdditions":{"rate":{"burst":1}}}`,
			"policyAdditions and knative: want deschedulerPolicyAPIVersion descheduler/v1alpha2 or rehome.dev/v1alpha1, " +
				"got descheduler/v1alpha1; rehome policy convert writes the policy in a newer version"},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			refused(t, c.set, c.want)
		})
	}
}

// TestRejectedDeschedulerFlags has all of them.
func TestRejectedDeschedulerFlags(t *testing.T) {
	const (
		traces = "want the standard variables of OpenTelemetry in extraEnv, such as OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318, " +
			"since traces go over HTTP and not over gRPC"
		serving = "there is no such setting; want metrics.tls self-signed, or files with metrics.tlsSecret, which means TLS 1.2 or newer"
	)
	for flag, want := range map[string]string{
		"policy-config-file=/policy-dir/policy.yaml": `want the policy in deschedulerPolicy, which the chart mounts, got "/policy-dir/policy.yaml"`,
		"otel-collector-endpoint=otel:4317":          traces,
		"otel-sample-rate=0.5":                       traces,
		"cert-dir=/certs":                            serving,
		"tls-min-version=VersionTLS13":               serving,
		"tls-cipher-suites=TLS_AES_128_GCM_SHA256":   serving,
		"tls-sni-cert-key=a":                         serving,
		"bind-address=127.0.0.1": `want 0.0.0.0 or ::, since the probes ask at the pod's address, got "127.0.0.1"; ` +
			"use networkPolicy to keep others away",
		"secure-port=0": "want a port from 1 to 65535, since the probes ask there, got 0",
		"feature-gates=Unheard=true": `want no gate but EvictionsInBackground, AllAlpha and AllBeta, got "Unheard=true"; ` +
			"remove it",
		"node-selector=zone=a": "it is not a flag that the chart knows; remove it, and say what you want of it by the keys of " +
			"values.yaml or a variable in extraEnv",
	} {
		name, _, _ := strings.Cut(flag, "=")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, "cmdOptions."+flag, "cmdOptions."+name+": "+want)
		})
	}
	for set, want := range map[string]string{
		"cmdOptions.tls-cert-file=/a": "cmdOptions.tls-cert-file and cmdOptions.tls-private-key-file: want both, got one of them",
		"cmdOptions.tls-cert-file=/a,cmdOptions.tls-private-key-file=/b,metrics.tls=self-signed": "cmdOptions.tls-cert-file: " +
			"want metrics.tls off or files with it, got self-signed",
		"cmdOptions.tls-cert-file=/a,cmdOptions.tls-private-key-file=/b,metrics.tls=files,metrics.tlsSecret=s": "cmdOptions.tls-cert-file " +
			"and metrics.tlsSecret: want one of them, got both",
	} {
		refused(t, set, want)
	}
}

// TestUnknownKeys shows what helm says of values that are of no use.
func TestUnknownKeys(t *testing.T) {
	for set, want := range map[string]string{
		"kind=DaemonSet":                  "at '/kind': value must be one of '', 'Deployment', 'CronJob', 'Job'",
		"nats.enabeld=true":               "at '/nats': additional properties 'enabeld' not allowed",
		"deschedulerpolicy.profiles=1":    "at '': additional properties 'deschedulerpolicy' not allowed",
		"metrics.tls=on":                  "at '/metrics/tls': value must be one of 'off', 'self-signed', 'files'",
		"nats.replicas=2":                 "at '/nats/replicas': value must be one of 1, 3, 5",
		"nats.prefix=rehome":              "at '/nats/prefix': 'not' failed",
		"nats.prefix=KV":                  "at '/nats/prefix': 'not' failed",
		"cronJobApiVersion=batch/v1beta1": "at '/cronJobApiVersion': value must be 'batch/v1'",
		"image.digest=sha256:0123":        "at '/image/digest': 'sha256:0123' does not match pattern '^(sha256:[0-9a-f]{64})?$'",
		"nats.image.digest=sha256:0123":   "at '/nats/image/digest': 'sha256:0123' does not match pattern '^(sha256:[0-9a-f]{64})?$'",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			out, complaint, err := run(helm(t, "template", "rehome", chart, "--set", set))
			if err == nil || !strings.Contains(complaint, "- "+want+"\n") {
				t.Errorf("got %q, error %v\nwant %q", complaint+out, err, want)
			}
		})
	}
}

// refused renders with these values and wants this message, and nothing but it.
func refused(t *testing.T, set, want string) {
	t.Helper()
	args := []string{"template", "rehome", chart, "--set", set}
	if strings.HasPrefix(set, "{") {
		args = []string{"template", "rehome", chart, "--set-json", set}
	}
	out, complaint, err := run(helm(t, args...))
	_, got, found := strings.Cut(complaint, "): ")
	got, _, _ = strings.Cut(got, "\n")
	if err == nil || !found || got != want {
		t.Errorf("%s:\n got %q, error %v, in %q\nwant %q", set, got, err, complaint+out, want)
	}
}
