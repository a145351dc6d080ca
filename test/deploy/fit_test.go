package deploy

import (
	"fmt"
	"maps"
	"os/exec"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// image is which image everything of Rehome runs.
const image = "ghcr.io/rehome-dev/rehome:v0.1.0"

// TestObjectHasNamespace: kubectl would put an object without a namespace into its current one. Cluster-scoped objects have none.
func TestObjectHasNamespace(t *testing.T) {
	ofTheCluster := []string{
		"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding",
	}
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, o := range objects {
			want := namespace
			switch kind := o.GetKind(); {
			case slices.Contains(ofTheCluster, kind):
				want = ""
			case (kind == "Role" || kind == "RoleBinding") && !strings.HasSuffix(o.GetName(), "-prometheus-token"): // of a lease
				want = "kube-system"
			}
			if got := o.GetNamespace(); got != want {
				t.Errorf("%s %s: got namespace %q, want %q", o.GetKind(), o.GetName(), got, want)
			}
		}
	})
}

func TestVariablesAsSettings(t *testing.T) {
	known := programtest.Settings(t)
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, w := range workloads(t, objects) {
			for _, c := range w.pods.Spec.Containers {
				for _, v := range c.Env {
					if c.Image == image && !slices.Contains(known, v.Name) && v.Name != "GOMEMLIMIT" {
						t.Errorf("%s %s: rehome does not read %s", w.kind, w.name, v.Name)
					}
				}
			}
		}
	})
}

// secretKeys returns the keys of a Secret that a user or `rehome auth secrets` creates.
func secretKeys(name string) []string {
	switch {
	case name == "rehome-requests-tls":
		return []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}
	case name == "rehome-nats-server":
		return []string{"ca.crt", "rehome.conf", "tls.crt", "tls.key"}
	case strings.HasPrefix(name, "rehome-nats-"):
		return []string{"ca.crt", "nkey", "tls.crt", "tls.key"}
	}
	return nil
}

func TestMountedFiles(t *testing.T) {
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		maps := map[string][]string{}
		for _, m := range of[corev1.ConfigMap](t, "ConfigMap", objects) {
			for key := range m.Data {
				maps[m.Name] = append(maps[m.Name], key)
			}
		}
		claims := names(t, "PersistentVolumeClaim", objects)
		for _, w := range workloads(t, objects) {
			for _, wrong := range wrongFiles(w.pods.Spec, maps, claims) {
				t.Errorf("%s %s: %s", w.kind, w.name, wrong)
			}
		}
	})
}

// wrongFiles returns errors in the volumes of a pod and in variables with file names.
func wrongFiles(pod corev1.PodSpec, configMaps map[string][]string, claims []string) (wrong []string) {
	holds, used := map[string][]string{}, map[string]bool{} // by volume; nil: any file
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil:
			holds[v.Name] = configMaps[v.ConfigMap.Name]
			if len(holds[v.Name]) == 0 {
				wrong = append(wrong, "there is no ConfigMap "+v.ConfigMap.Name)
			}
		case v.Secret != nil:
			holds[v.Name] = secretKeys(v.Secret.SecretName)
			if len(holds[v.Name]) == 0 {
				wrong = append(wrong, "unknown Secret "+v.Secret.SecretName)
			}
		case v.PersistentVolumeClaim != nil && !slices.Contains(claims, v.PersistentVolumeClaim.ClaimName):
			wrong = append(wrong, "there is no claim "+v.PersistentVolumeClaim.ClaimName)
		default:
			holds[v.Name] = nil
		}
	}
	for _, c := range pod.Containers {
		at := map[string]string{}
		for _, m := range c.VolumeMounts {
			if _, is := holds[m.Name]; !is {
				wrong = append(wrong, "there is no volume "+m.Name)
			}
			at[m.MountPath], used[m.Name] = m.Name, true
		}
		for _, v := range c.Env {
			if !strings.HasPrefix(v.Value, "/") {
				continue
			}
			volume, whole := at[v.Value]
			in, is := at[path.Dir(v.Value)]
			if !whole && (!is || !slices.Contains(holds[in], path.Base(v.Value))) || whole && holds[volume] != nil {
				wrong = append(wrong, fmt.Sprintf("%s: there is no file %s", v.Name, v.Value))
			}
		}
	}
	for _, v := range pod.Volumes {
		if !used[v.Name] {
			wrong = append(wrong, "the volume "+v.Name+" is not mounted")
		}
	}
	return wrong
}

// names returns the names of all objects of a kind, in order.
func names(t *testing.T, kind string, objects []*unstructured.Unstructured) (all []string) {
	t.Helper()
	for _, o := range of[metav1.PartialObjectMetadata](t, kind, partial(objects)) {
		all = append(all, o.Name)
	}
	return all
}

// partial is objects without what only their own kind has.
func partial(objects []*unstructured.Unstructured) (all []*unstructured.Unstructured) {
	for _, o := range objects {
		all = append(all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "metadata": o.Object["metadata"],
		}})
	}
	return all
}

func TestMissingFile(t *testing.T) {
	pod := corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "policy", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "p"}}}},
			{Name: "gone", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nobodys"}}},
			{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		},
		Containers: []corev1.Container{{
			VolumeMounts: []corev1.VolumeMount{{Name: "policy", MountPath: "/p"}, {Name: "none", MountPath: "/n"}},
			Env:          []corev1.EnvVar{{Name: "GOOD", Value: "/p/policy.yaml"}, {Name: "BAD", Value: "/p/other.yaml"}, {Name: "FAR", Value: "/q/a"}},
		}},
	}
	want := []string{
		"unknown Secret nobodys", "there is no claim c", "there is no volume none", "BAD: there is no file /p/other.yaml",
		"FAR: there is no file /q/a", "the volume gone is not mounted", "the volume claim is not mounted",
	}
	if got := wrongFiles(pod, map[string][]string{"p": {"policy.yaml"}}, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// pinned is an image with a version, or a digest, of its own.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+(:v?\d+\.\d+\.\d+[a-z0-9.-]*)?(@sha256:[0-9a-f]{64})?$`)

func TestPinnedImages(t *testing.T) {
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, w := range workloads(t, objects) {
			for _, c := range slices.Concat(w.pods.Spec.InitContainers, w.pods.Spec.Containers) {
				ours := strings.HasPrefix(c.Image, "ghcr.io/rehome-dev/")
				if ours && c.Image != image || !pinned.MatchString(c.Image) || !strings.ContainsAny(c.Image, ":@") {
					t.Errorf("%s %s runs %s", w.kind, w.name, c.Image)
				}
			}
		}
	})
}

// TestSelectors: one workload for what belongs to one, at least one for rules of the network.
func TestSelectors(t *testing.T) {
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		all := workloads(t, objects)
		for _, w := range all {
			if w.selector != nil {
				selects(t, w.kind+" "+w.name, all, w.selector, w.name)
			}
		}
		for _, b := range of[policyv1.PodDisruptionBudget](t, "PodDisruptionBudget", objects) {
			selects(t, "PodDisruptionBudget "+b.Name, all, b.Spec.Selector, b.Name)
		}
		for _, s := range of[corev1.Service](t, "Service", objects) {
			if s.Name == "rehome-nats" && len(s.Spec.Selector) == 0 {
				continue
			}
			found := selects(t, "Service "+s.Name, all, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, "")
			for _, p := range s.Spec.Ports {
				if len(found) == 1 && p.TargetPort.Type == intstr.String && !hasPort(found[0], p.TargetPort.StrVal) {
					t.Errorf("Service %s: %s has no port %s", s.Name, found[0].name, p.TargetPort.StrVal)
				}
			}
		}
		for _, n := range of[networkingv1.NetworkPolicy](t, "NetworkPolicy", objects) {
			for _, w := range selected(t, all, &n.Spec.PodSelector) {
				for _, rule := range n.Spec.Ingress {
					for _, p := range rule.Ports {
						if p.Port.Type == intstr.String && len(w.pods.Spec.Containers[0].Ports) > 0 && !hasPort(w, p.Port.StrVal) {
							t.Errorf("NetworkPolicy %s: %s has no port %s", n.Name, w.name, p.Port.StrVal)
						}
					}
				}
			}
			if len(selected(t, all, &n.Spec.PodSelector)) == 0 {
				t.Errorf("NetworkPolicy %s selects nothing", n.Name)
			}
		}
		for _, h := range of[autoscalingv2.HorizontalPodAutoscaler](t, "HorizontalPodAutoscaler", objects) {
			if to := h.Spec.ScaleTargetRef; !slices.Contains(names(t, to.Kind, objects), to.Name) {
				t.Errorf("HorizontalPodAutoscaler %s: there is no %s %s", h.Name, to.Kind, to.Name)
			}
		}
	})
}

func hasPort(w workload, name string) bool {
	return slices.ContainsFunc(w.pods.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
	})
}

// selects returns the workloads that match a selector. It must be exactly one, with this name unless the name is empty.
func selects(t *testing.T, who string, all []workload, selector *metav1.LabelSelector, name string) []workload {
	t.Helper()
	found := selected(t, all, selector)
	if len(found) != 1 || name != "" && found[0].name != name {
		t.Errorf("%s selects %d workloads, want one: %s", who, len(found), name)
	}
	return found
}

func selected(t *testing.T, all []workload, selector *metav1.LabelSelector) (found []workload) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	expect.Must(t, err)
	for _, w := range all {
		if s.Matches(labels.Set(w.pods.Labels)) {
			found = append(found, w)
		}
	}
	return found
}

func TestAccountAndRoleReferences(t *testing.T) {
	var anyway []string // the accounts of all ways
	for _, w := range ways {
		anyway = append(anyway, names(t, "ServiceAccount", render(t, w))...)
	}
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		accounts, used := names(t, "ServiceAccount", objects), map[string]bool{}
		for _, w := range workloads(t, objects) {
			name := w.pods.Spec.ServiceAccountName
			used[name] = true
			if c := w.pods.Spec.Containers[0]; w.kind != "knative" && (name != "" || c.Image == image) && !slices.Contains(accounts, name) {
				t.Errorf("%s %s: there is no ServiceAccount %q", w.kind, w.name, name)
			}
		}
		for _, name := range accounts {
			if !used[name] {
				t.Errorf("no pod has the ServiceAccount %s", name)
			}
		}
		bindings := of[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding", objects)
		for _, b := range of[rbacv1.RoleBinding](t, "RoleBinding", objects) {
			bindings = append(bindings, rbacv1.ClusterRoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects})
		}
		for _, b := range bindings {
			if !slices.Contains(names(t, b.RoleRef.Kind, objects), b.RoleRef.Name) {
				t.Errorf("binding %s: there is no %s %s", b.Name, b.RoleRef.Kind, b.RoleRef.Name)
			}
			known := 0
			for _, s := range b.Subjects { // one of another way of installing may be named as well
				if s.Kind != "ServiceAccount" || s.Namespace != namespace || !slices.Contains(anyway, s.Name) {
					t.Errorf("binding %s: there is no %s %s in %q", b.Name, s.Kind, s.Name, s.Namespace)
				}
				if slices.Contains(accounts, s.Name) {
					known++
				}
			}
			if known == 0 {
				t.Errorf("binding %s has no subjects", b.Name)
			}
		}
	})
}

// needsCluster are the commands that talk to the API server.
var needsCluster = []string{"run", "watcher", "actuator", "maintenance", "api", "once", "setup"}

// TestRestrictedPods holds what Pod Security does not ask for, too.
func TestRestrictedPods(t *testing.T) {
	yes, no, user := true, false, int64(65532)
	container := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	seccomp := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	pod := &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, SeccompProfile: seccomp}
	function := container.DeepCopy() // Knative does not take a security context of the pod
	function.RunAsNonRoot, function.RunAsUser, function.RunAsGroup, function.SeccompProfile = &yes, &user, &user, seccomp
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, w := range workloads(t, objects) {
			spec := w.pods.Spec
			c := spec.Containers[0]
			if c.Image != image {
				continue
			}
			wantPod, wantContainer, priority := pod, container, "system-cluster-critical"
			if w.kind == "knative" {
				wantPod, wantContainer, priority = nil, function, ""
			}
			if len(spec.Containers) != 1 || !reflect.DeepEqual(spec.SecurityContext, wantPod) || !reflect.DeepEqual(c.SecurityContext, wantContainer) {
				t.Errorf("%s %s: the security contexts are %+v and %+v", w.kind, w.name, spec.SecurityContext, c.SecurityContext)
			}
			if spec.PriorityClassName != priority {
				t.Errorf("%s %s has the priority class %q, want %q", w.kind, w.name, spec.PriorityClassName, priority)
			}
			if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
				t.Errorf("%s %s: Services set variables that begin with REHOME_", w.kind, w.name)
			}
			token := spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken
			if token != slices.Contains(needsCluster, c.Args[0]) {
				t.Errorf("%s %s, rehome %s: it has a token: %v", w.kind, w.name, c.Args[0], token)
			}
			if len(c.Resources.Requests) != 2 {
				t.Errorf("%s %s requests %v", w.kind, w.name, c.Resources.Requests)
			}
		}
	})
}

// TestMemoryLimits: each container has one, and the Go runtime collects garbage before it is reached.
func TestMemoryLimits(t *testing.T) {
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, w := range workloads(t, objects) {
			for _, c := range w.pods.Spec.Containers {
				limit := c.Resources.Limits.Memory().Value()
				goLimit := int64(0)
				for _, v := range c.Env {
					if v.Name == "GOMEMLIMIT" {
						q := resource.MustParse(strings.TrimSuffix(v.Value, "B"))
						goLimit = q.Value()
					}
				}
				if goLimit < limit*85/100 || goLimit > limit*90/100 || limit == 0 {
					t.Errorf("%s %s, container %s: GOMEMLIMIT is %d, want about 90 %% of the limit of memory, which is %d", w.kind, w.name, c.Name, goLimit, limit)
				}
			}
		}
	})
}

// TestProbesMatchServers: over TLS where that is on.
func TestProbesMatchServers(t *testing.T) {
	inEveryWay(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, w := range workloads(t, objects) {
			c := w.pods.Spec.Containers[0]
			environment := map[string]string{}
			for _, v := range c.Env {
				environment[v.Name] = v.Value
			}
			if w.kind != "Deployment" || c.Image != image {
				continue
			}
			scheme := corev1.URIScheme("")
			if environment["REHOME_HTTP_TLS"] != "" {
				scheme = corev1.URISchemeHTTPS
			}
			probe := func(path string, period int32) *corev1.Probe {
				get := &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: scheme}
				return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}, PeriodSeconds: period, TimeoutSeconds: 5}
			}
			if live, ready := probe("/healthz", 10), probe("/readyz", 5); !reflect.DeepEqual(c.LivenessProbe, live) || !reflect.DeepEqual(c.ReadinessProbe, ready) {
				t.Errorf("%s: probes are %+v and %+v", w.name, c.LivenessProbe, c.ReadinessProbe)
			}
			ports := []corev1.ContainerPort{{Name: "http", ContainerPort: 8642}}
			if environment["REHOME_API_ADDRESS"] == ":8643" {
				ports = append(ports, corev1.ContainerPort{Name: "requests", ContainerPort: 8643})
			}
			slices.SortFunc(c.Ports, func(a, b corev1.ContainerPort) int { return int(a.ContainerPort - b.ContainerPort) })
			if environment["REHOME_HTTP_ADDRESS"] != ":8642" || !reflect.DeepEqual(c.Ports, ports) {
				t.Errorf("%s serves at %q, and has the ports %v, want %v", w.name, environment["REHOME_HTTP_ADDRESS"], c.Ports, ports)
			}
		}
	})
}

// protection is the protection of the metrics of a workload.
type protection struct {
	policy    bool // the NetworkPolicy of the namespace applies to its pods
	tls, auth bool
}

// TestProtectedMetrics: each part is in the NetworkPolicy. With the components, each part that serves has TLS, and each of them that
// can ask the API server checks tokens.
func TestProtectedMetrics(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			objects := render(t, way)
			all := workloads(t, objects)
			got, want := map[string]protection{}, map[string]protection{}
			guarded := slices.Contains(way.components, "guarded-metrics")
			overTLS := guarded || slices.Contains(way.components, "tls")
			for _, w := range all {
				c := w.pods.Spec.Containers[0]
				if w.kind == "knative" || c.Image != image {
					continue
				}
				var p protection
				for _, v := range c.Env {
					p.tls = p.tls || v.Name == "REHOME_HTTP_TLS"
					p.auth = p.auth || v.Name == "REHOME_HTTP_AUTH"
				}
				got[w.name] = p
				serves := hasPort(w, "http")
				want[w.name] = protection{
					policy: true, tls: overTLS && serves, auth: guarded && serves && slices.Contains(needsCluster, c.Args[0]),
				}
			}
			for _, n := range of[networkingv1.NetworkPolicy](t, "NetworkPolicy", objects) {
				for _, w := range selected(t, all, &n.Spec.PodSelector) {
					if p, known := got[w.name]; known && n.Name == "rehome" {
						p.policy = true
						got[w.name] = p
					}
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestPolicyMatchesRepository(t *testing.T) {
	want := filetest.Read(t, root, "deploy/policy.yaml")
	got := filetest.Read(t, root, "deploy/kustomize/policy/policy.yaml")
	if got != want {
		t.Error("deploy/kustomize/policy/policy.yaml is not deploy/policy.yaml")
	}
}

// TestKnativeServicesMatchPolicy: no more and no less than the strategies that are built in.
func TestKnativeServicesMatchPolicy(t *testing.T) {
	want := map[string]string{}
	for _, f := range functions.All() {
		want[f.Strategy.Name] = ""
	}
	served := maps.Clone(want)
	for _, w := range ways {
		if !strings.Contains(w.folder, "knative") && !slices.Contains(w.components, "knative") {
			continue
		}
		objects := render(t, w)
		for _, s := range workloads(t, objects) {
			if s.kind == "knative" {
				served[s.pods.Spec.Containers[0].Args[1]] = "http://" + s.name + "." + namespace + ".svc"
			}
			if s.name == "rehome-functions" && !slices.Equal(s.pods.Spec.Containers[0].Args, []string{"functions", "Request"}) {
				t.Errorf("%s: rehome-functions runs %q", w.name, s.pods.Spec.Containers[0].Args)
			}
		}
		policy := ""
		for _, m := range of[corev1.ConfigMap](t, "ConfigMap", objects) {
			policy += m.Data["policy.yaml"]
		}
		asked := maps.Clone(want)
		for _, m := range regexp.MustCompile(`- name: (\w+)\n +http: \{url: (\S+)\}`).FindAllStringSubmatch(policy, -1) {
			asked[m[1]] = m[2]
		}
		if !reflect.DeepEqual(asked, served) {
			t.Errorf("%s: asked at %v\nserved at %v", w.name, asked, served)
		}
		for name, url := range served {
			if url == "" {
				t.Errorf("%s: no service serves %s", w.name, name)
			}
		}
		check := exec.CommandContext(t.Context(), expect.Value(t, program.Build), "policy", "check", "-")
		check.Stdin = strings.NewReader(policy)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", w.name, err, out)
		}
	}
}
