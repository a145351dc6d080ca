package chart

import (
	"cmp"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// feature is a feature that a user can turn off.
type feature struct {
	folder  string // of deploy/kustomize/rbac, with the rights
	part    string // the role that has them
	on, off string // values, as members of a JSON object; of policyAdditions if they begin with a "+"
}

// features are the features whose rights test/deploy/rbac removes one by one.
var features = []feature{
	{"maintenance/rules", "maintenance", `"maintenance":{"enabled":true}`, `"maintenance":{"enabled":false}`},
	{"restart", "actuator", `+"restart":{"workloads":"Annotated"}`, `+"maintenance":{"restart":false}`},
	{"eviction-requests", "actuator", `+"evictionRequests":{"wait":"1m"}`, ``},
	{"requests", "api", `"requests":{"enabled":true}`, ``},
	{"metrics-api", "watcher", `+"metricsProviders":[{"source":"KubernetesMetrics"}]`, ``},
}

// TestRights renders the chart with each combination of features, and compares the rights of each account with the rights in the
// manifests of its roles and of its features.
func TestRights(t *testing.T) {
	t.Parallel()
	for mode, set := range map[string]string{"one_process": "", "each_role": `"mode":"distributed","nats":{"enabled":true}`, "once": `"kind":"CronJob"`} {
		for combination := range 1 << len(features) {
			var on []feature
			var names, values, additions []string
			for i, f := range features {
				value := f.off
				if combination&(1<<i) != 0 {
					value, on, names = f.on, append(on, f), append(names, strings.TrimSuffix(f.folder, "/rules"))
				}
				if addition, is := strings.CutPrefix(value, "+"); is {
					additions = append(additions, addition)
				} else if value != "" {
					values = append(values, value)
				}
			}
			if mode == "once" && slices.Contains(names, "requests") {
				continue // refused
			}
			if set != "" {
				values = append(values, set)
			}
			values = append(values, `"policyAdditions":{`+strings.Join(additions, ",")+`}`)
			t.Run(mode+"/"+strings.Join(names, ","), func(t *testing.T) {
				t.Parallel()
				got := rights(t, rendered(t, "rehome", "--set-json", "{"+strings.Join(values, ",")+"}"))
				if want := wantedRights(t, mode, on); !reflect.DeepEqual(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
			})
		}
	}
}

// wantedRights returns the rights of each account in a mode with some features.
func wantedRights(t *testing.T, mode string, on []feature) map[string][]string {
	t.Helper()
	want := map[string][]string{}
	add := func(part, folder string, lease bool) {
		account := "rehome/rehome"
		if mode == "each_role" {
			account += "-" + part
		}
		for _, r := range rightsIn(t, folder) {
			if lease || !strings.Contains(r, " kube-system") {
				want[account] = append(want[account], r)
			}
		}
	}
	add("watcher", "watcher/rules", mode != "once")
	add("actuator", "actuator/rules", true)
	if mode == "each_role" {
		add("setup", "setup", true)
	}
	for _, f := range on {
		if mode != "once" || f.part != "maintenance" {
			add(f.part, f.folder, true)
			if mode == "each_role" && f.part == "api" {
				add("api", "api/rules", true)
			}
			if f.folder == "metrics-api" && slices.ContainsFunc(on, func(f feature) bool { return f.part == "api" }) {
				add("api", f.folder, true) // which simulates the policy
			}
		}
	}
	for account, list := range want {
		slices.Sort(list)
		want[account] = slices.Compact(list)
	}
	return want
}

// rightsIn lists the rights of the roles in a folder of deploy/kustomize/rbac, each as VERB RESOURCE.GROUP/NAME NAMESPACE.
func rightsIn(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/kustomize/rbac", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, error %v", folder, len(files), err)
	}
	for _, file := range files {
		for _, o := range parse(t, filetest.Read(t, root, strings.TrimPrefix(file, root+"/"))) {
			if kind := o.GetKind(); kind == "ClusterRole" || kind == "Role" {
				all = append(all, rightsOf(t, o)...)
			}
		}
	}
	return all
}

func rightsOf(t *testing.T, o *unstructured.Unstructured) (all []string) {
	t.Helper()
	for _, rule := range manifesttest.Typed[rbacv1.ClusterRole](t, o).Rules {
		rule.NonResourceURLs = nil
		for _, r := range validation.BreakdownRule(rule) {
			name := cmp.Or(strings.Join(r.ResourceNames, ""), "*")
			all = append(all, strings.TrimSpace(r.Verbs[0]+" "+r.Resources[0]+"."+r.APIGroups[0]+"/"+name+" "+o.GetNamespace()))
		}
	}
	return all
}

// rights are the rights of each ServiceAccount, as in [rightsIn].
func rights(t *testing.T, all objects) map[string][]string {
	t.Helper()
	of := map[string][]string{}
	for _, o := range all {
		if kind := o.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		b := manifesttest.Typed[rbacv1.ClusterRoleBinding](t, o)
		for _, s := range b.Subjects {
			account := s.Namespace + "/" + s.Name
			of[account] = append(of[account], rightsOf(t, all.one(t, b.RoleRef.Kind, b.RoleRef.Name))...)
		}
	}
	for account, list := range of {
		slices.Sort(list)
		of[account] = slices.Compact(list)
	}
	return of
}

// TestBindings binds rights to the accounts that other values name.
func TestBindings(t *testing.T) {
	const prometheus = `{"policyAdditions":{"metricsProviders":[{"source":"Prometheus","prometheus":` +
		`{"url":"http://p","authToken":{"secretReference":{"namespace":"monitoring","name":"token"}}}}]}}`
	apart := []string{"--set", "mode=distributed,nats.enabled=true"}
	token, review, lease := "get secrets./token monitoring", "create tokenreviews.authentication.k8s.io/*", "get leases.coordination.k8s.io/rehome-actuator "
	for name, c := range map[string]struct {
		args  []string
		right string
		want  []string // accounts
	}{
		"prometheus_token":           {[]string{"--set-json", prometheus}, token, []string{"rehome/rehome"}},
		"prometheus_token_each_role": {append(apart, "--set-json", prometheus), token, []string{"rehome/rehome-maintenance", "rehome/rehome-watcher"}},
		"prometheus_token_api": {append(apart, "--set", "requests.enabled=true,requests.tls=self-signed", "--set-json", prometheus), token,
			[]string{"rehome/rehome-api", "rehome/rehome-maintenance", "rehome/rehome-watcher"}},
		"prometheus_token_unmaintained": {append(apart, "--set", "maintenance.enabled=false", "--set-json", prometheus), token,
			[]string{"rehome/rehome-watcher"}},
		"guarded_metrics": {append(apart, "--set", "metrics.tls=self-signed,metrics.auth=true"), review,
			[]string{"rehome/rehome-actuator", "rehome/rehome-maintenance", "rehome/rehome-watcher"}},
		"leases_elsewhere": {[]string{"--set", "leaderElection.resourceNamespace=there"}, lease + "there", []string{"rehome/rehome"}},
		"installation":     {[]string{"--set", "installation=second"}, strings.Replace(lease, "rehome-", "second-", 1) + "kube-system", []string{"rehome/rehome"}},
		"own_account":      {[]string{"--set", "serviceAccount.create=false,serviceAccount.name=mover"}, "create pods/eviction./*", []string{"rehome/mover"}},
		"made_elsewhere":   {[]string{"--set", "rbac.create=false"}, "create pods/eviction./*", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for account, list := range rights(t, rendered(t, "rehome", c.args...)) {
				if slices.Contains(list, c.right) {
					got = append(got, account)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestTokenMounts looks at pods and at their accounts.
func TestTokenMounts(t *testing.T) {
	all := rendered(t, "rehome", "--values", combinations(t)["distributed"])
	got, want := map[string]bool{}, map[string]bool{}
	for _, o := range all {
		switch o.GetKind() {
		case "ServiceAccount":
			got["account "+o.GetName()] = *manifesttest.Typed[corev1.ServiceAccount](t, o).AutomountServiceAccountToken
		case "Deployment":
			got["pods of "+o.GetName()] = *manifesttest.Typed[appsv1.Deployment](t, o).Spec.Template.Spec.AutomountServiceAccountToken
		case "StatefulSet":
			got["pods of "+o.GetName()] = *manifesttest.Typed[appsv1.StatefulSet](t, o).Spec.Template.Spec.AutomountServiceAccountToken
		}
	}
	for _, name := range []string{"watcher", "actuator", "maintenance", "api", "functions", "dispatcher"} {
		token := name != "functions" && name != "dispatcher"
		want["account rehome-"+name], want["pods of rehome-"+name] = token, token
	}
	want["account rehome-setup"], want["pods of rehome-nats"] = true, false
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestCRDResourcePolicy compares the CRDs and their admission policy with deploy/crds, except for the annotation that makes helm
// keep them. Without the policy, a user could drain nodes without the right to delete them.
func TestCRDResourcePolicy(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "deploy/crds/*.yaml"))
	expect.Must(t, err)
	all := parse(t, must(t, helm(t, "template", "rehome-crds", chart+"-crds")))
	compared := 0
	for _, file := range files {
		for _, want := range parse(t, filetest.Read(t, root, strings.TrimPrefix(file, root+"/"))) {
			if want.GetKind() == "Kustomization" {
				continue
			}
			got := all.one(t, want.GetKind(), want.GetName())
			if want.GetKind() != "ClusterRole" {
				annotations := map[string]string{"helm.sh/resource-policy": "keep"}
				maps.Copy(annotations, want.GetAnnotations())
				want.SetAnnotations(annotations)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s:\n got %v\nwant %v", want.GetKind(), want.GetName(), got, want)
			}
			compared++
		}
	}
	if compared < 6 {
		t.Errorf("%d objects were compared", compared)
	}
	for _, o := range parse(t, must(t, helm(t, "template", "rehome-crds", chart+"-crds", "--set", "keep=false"))) {
		if o.GetAnnotations()["helm.sh/resource-policy"] != "" {
			t.Errorf("%s %s is kept", o.GetKind(), o.GetName())
		}
	}
}
