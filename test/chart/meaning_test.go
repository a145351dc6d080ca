package chart

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// meaning is the meaning of a rendered chart, independent of the chart. Missing values are left out.
type meaning map[string]any

// set sets a field unless the value is empty.
func (m meaning) set(field string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		panic(err)
	}
	switch v := plain.(type) {
	case nil:
		return
	case string:
		if v == "" {
			return
		}
	case map[string]any:
		if len(v) == 0 {
			return
		}
	case []any:
		if len(v) == 0 {
			return
		}
	}
	m[field] = plain
}

// meaningOf reads it from the objects of a release in the mode all-in-one.
func meaningOf(t *testing.T, all objects) meaning {
	t.Helper()
	m := meaning{}
	for _, o := range all {
		switch o.GetKind() {
		case "Deployment":
			m.deployment(manifesttest.Typed[appsv1.Deployment](t, o))
		case "CronJob":
			m.cronJob(manifesttest.Typed[batchv1.CronJob](t, o))
		case "ConfigMap":
			m.policy(t, manifesttest.Typed[corev1.ConfigMap](t, o))
		case "PodDisruptionBudget":
			b := manifesttest.Typed[policyv1.PodDisruptionBudget](t, o)
			m.set("budget", map[string]any{
				"minAvailable": b.Spec.MinAvailable, "maxUnavailable": b.Spec.MaxUnavailable,
				"unhealthyPodEvictionPolicy": b.Spec.UnhealthyPodEvictionPolicy,
			})
		case "ServiceAccount":
			a := manifesttest.Typed[corev1.ServiceAccount](t, o)
			account := map[string]any{"name": a.Name, "token": *a.AutomountServiceAccountToken}
			if len(a.Annotations) > 0 {
				account["annotations"] = a.Annotations
			}
			m.set("account", account)
		case "Service":
			m.service(manifesttest.Typed[corev1.Service](t, o))
		case "ServiceMonitor":
			m.monitor(o)
		case "Role":
			m.secrets(manifesttest.Typed[rbacv1.Role](t, o))
		}
	}
	return m
}

func (m meaning) deployment(d appsv1.Deployment) {
	m.set("kind", d.Kind)
	m.set("namespace", d.Namespace)
	m.set("replicas", d.Spec.Replicas)
	m.set("labels", others(d.Labels))
	m.set("ownerAnnotations", d.Annotations)
	m.pod(d.Spec.Template.ObjectMeta, d.Spec.Template.Spec, d.Labels)
}

func (m meaning) cronJob(c batchv1.CronJob) {
	m.set("kind", c.Kind)
	m.set("namespace", c.Namespace)
	m.set("labels", others(c.Labels))
	m.set("schedule", c.Spec.Schedule)
	m.set("timeZone", c.Spec.TimeZone)
	m.set("suspend", c.Spec.Suspend)
	m.set("startingDeadlineSeconds", c.Spec.StartingDeadlineSeconds)
	m.set("successfulJobsHistoryLimit", c.Spec.SuccessfulJobsHistoryLimit)
	m.set("failedJobsHistoryLimit", c.Spec.FailedJobsHistoryLimit)
	m.set("concurrency", c.Spec.ConcurrencyPolicy)
	m.set("jobAnnotations", c.Spec.JobTemplate.Annotations)
	m.set("jobLabels", others(c.Spec.JobTemplate.Labels))
	job := c.Spec.JobTemplate.Spec
	m.set("ttlSecondsAfterFinished", job.TTLSecondsAfterFinished)
	m.set("activeDeadlineSeconds", job.ActiveDeadlineSeconds)
	m.set("restart", job.Template.Spec.RestartPolicy)
	m.pod(job.Template.ObjectMeta, job.Template.Spec, nil)
}

// others are the labels that the values ask for.
func others(labels map[string]string) map[string]string {
	rest := map[string]string{}
	for key, value := range labels {
		if !strings.HasPrefix(key, "app.kubernetes.io/") && !strings.HasPrefix(key, "helm.sh/") {
			rest[key] = value
		}
	}
	return rest
}

// pod reads the pods of a workload. It ignores labels that the owner also has.
func (m meaning) pod(meta metav1.ObjectMeta, spec corev1.PodSpec, owner map[string]string) {
	labels := others(meta.Labels)
	for key := range owner {
		delete(labels, key)
	}
	m.set("podLabels", labels)
	m.set("podAnnotations", meta.Annotations)
	m.set("priorityClass", spec.PriorityClassName)
	m.set("nodeSelector", spec.NodeSelector)
	m.set("tolerations", spec.Tolerations)
	m.set("affinity", spec.Affinity)
	m.set("dns", spec.DNSConfig)
	m.set("initContainers", spec.InitContainers)
	if len(spec.TopologySpreadConstraints) > 0 && spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels["app.kubernetes.io/component"] == "" {
		m.set("spread", spec.TopologySpreadConstraints)
	}
	var secrets []string
	for _, s := range spec.ImagePullSecrets {
		secrets = append(secrets, s.Name)
	}
	m.set("pullSecrets", secrets)
	own := []string{"policy", "store"}
	m.set("volumes", slices.DeleteFunc(slices.Clone(spec.Volumes), func(v corev1.Volume) bool { return slices.Contains(own, v.Name) }))
	c := spec.Containers[0]
	m.set("mounts", slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(v corev1.VolumeMount) bool { return slices.Contains(own, v.Name) }))
	m.container(c, spec.SecurityContext)
}

func (m meaning) container(c corev1.Container, pod *corev1.PodSecurityContext) {
	m.set("image", c.Image)
	m.set("pullPolicy", c.ImagePullPolicy)
	m.set("command", c.Command)
	m.set("resources", c.Resources)
	m.set("user", c.SecurityContext.RunAsUser)
	s := c.SecurityContext
	m.set("restricted", *s.RunAsNonRoot && *s.ReadOnlyRootFilesystem && !*s.AllowPrivilegeEscalation && !*s.Privileged &&
		slices.Contains(s.Capabilities.Drop, "ALL") && pod.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault)
	arguments, leader := slices.Clone(c.Args), map[string]any{"elected": true, "duration": "15s"}
	for _, e := range c.Env {
		switch e.Name {
		case "REHOME_LEASE_NAMESPACE":
			leader["namespace"] = e.Value
		case "REHOME_LEASE_DURATION":
			leader["duration"] = e.Value
		case "REHOME_CLUSTER", "REHOME_INSTALLATION", "REHOME_POLICY", "REHOME_STORE_DIR", "REHOME_STORE_RESERVE",
			"REHOME_HTTP_ADDRESS":
		default:
			arguments = append(arguments, e.Name+"="+e.Value)
		}
	}
	m.set("arguments", arguments)
	m.set("leader", leader)
	if p := c.LivenessProbe; p != nil {
		m.set("serves", map[string]any{"port": c.Ports[0].ContainerPort, "scheme": p.HTTPGet.Scheme})
		m.set("liveness", map[string]any{
			"path": p.HTTPGet.Path, "failureThreshold": p.FailureThreshold, "initialDelaySeconds": p.InitialDelaySeconds,
			"periodSeconds": p.PeriodSeconds, "timeoutSeconds": p.TimeoutSeconds,
		})
	}
}

func (m meaning) policy(t *testing.T, c corev1.ConfigMap) {
	t.Helper()
	var p map[string]any
	if err := yaml.Unmarshal([]byte(c.Data["policy.yaml"]), &p); err != nil {
		t.Fatal(err)
	}
	m.set("policyVersion", p["apiVersion"])
	delete(p, "apiVersion")
	delete(p, "kind")
	m.set("policy", p)
}

func (m meaning) service(s corev1.Service) {
	service := map[string]any{"headless": s.Spec.ClusterIP == corev1.ClusterIPNone, "name": s.Spec.Ports[0].Name, "port": s.Spec.Ports[0].Port}
	if s.Spec.IPFamilyPolicy != nil {
		service["ipFamilyPolicy"] = *s.Spec.IPFamilyPolicy
	}
	m.set("service", service)
}

func (m meaning) monitor(o *unstructured.Unstructured) {
	endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "endpoints")
	e := endpoints[0].(map[string]any)
	monitor := map[string]any{"labels": others(o.GetLabels())}
	if team := monitor["labels"].(map[string]string); team != nil {
		delete(team, "team") // of everything
	}
	for _, key := range []string{"interval", "scheme", "honorLabels", "metricRelabelings", "relabelings"} {
		if value, given := e[key]; given {
			monitor[key] = value
		}
	}
	if insecure, given, _ := unstructured.NestedBool(e, "tlsConfig", "insecureSkipVerify"); given {
		monitor["insecure"] = insecure
	}
	m.set("monitor", monitor)
}

// secrets reads the Secrets that a Role allows to get.
func (m meaning) secrets(r rbacv1.Role) {
	var names []string
	for _, rule := range r.Rules {
		if slices.Contains(rule.Resources, "secrets") {
			for _, name := range rule.ResourceNames {
				names = append(names, r.Namespace+"/"+name)
			}
		}
	}
	m.set("secrets", names)
}
