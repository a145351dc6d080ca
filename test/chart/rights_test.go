package chart

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestRulesMatchTheManifests compares each role that the chart renders with the one of kustomize.
func TestRulesMatchTheManifests(t *testing.T) {
	all := rendered(t, "rehome", "--values", combinations(t)["distributed"], "--set-json",
		`{"policyAdditions":{"metricsProviders":[{"source":"KubernetesMetrics"}]}}`)
	for _, folder := range []string{"watcher/rules", "actuator/rules", "maintenance/rules", "requests", "metrics-api", "people"} {
		files, err := filepath.Glob(filepath.Join(root, "deploy/kustomize/rbac", folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", folder, len(files), err)
		}
		for _, file := range files {
			for _, source := range parse(t, read(t, strings.TrimPrefix(file, root+"/"))) {
				if kind := source.GetKind(); kind == "ClusterRole" || kind == "Role" {
					want := into[rbacv1.ClusterRole](t, source).Rules
					if got := into[rbacv1.ClusterRole](t, all.one(t, kind, source.GetName())).Rules; !reflect.DeepEqual(got, want) {
						t.Errorf("%s %s:\n got %v\nwant %v", kind, source.GetName(), got, want)
					}
				}
			}
		}
	}
}

// bound are the roles of each ServiceAccount, as KIND/NAME in NAMESPACE.
func bound(t *testing.T, all objects) map[string][]string {
	t.Helper()
	roles := map[string][]string{}
	for _, o := range all {
		if kind := o.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		b := into[rbacv1.ClusterRoleBinding](t, o)
		for _, s := range b.Subjects {
			role := b.RoleRef.Kind + "/" + b.RoleRef.Name
			if b.Namespace != "" {
				role += " in " + b.Namespace
			}
			roles[s.Namespace+"/"+s.Name] = append(roles[s.Namespace+"/"+s.Name], role)
		}
	}
	for _, list := range roles {
		slices.Sort(list)
	}
	return roles
}

func TestAccountRoles(t *testing.T) {
	watcher, actuator, requests := "ClusterRole/rehome-watcher", "ClusterRole/rehome-actuator", "ClusterRole/rehome-requests"
	maintenance, measures, setup := "ClusterRole/rehome-maintenance", "ClusterRole/rehome-metrics-api", "ClusterRole/rehome-setup"
	all := func(leases string) map[string][]string {
		return map[string][]string{"rehome/rehome": {actuator, maintenance, watcher,
			"Role/rehome-actuator in " + leases, "Role/rehome-maintenance in " + leases, "Role/rehome-watcher in " + leases}}
	}
	const measured = `{"policyAdditions":{"metricsProviders":[{"source":"KubernetesMetrics"},{"source":"Prometheus","prometheus":` +
		`{"url":"http://p","authToken":{"secretReference":{"namespace":"monitoring","name":"token"}}}}]}}`
	for rule, c := range map[string]struct {
		args []string
		want map[string][]string
	}{
		"all in one":           {nil, all("kube-system")},
		"a round now and then": {[]string{"--set", "kind=CronJob"}, all("kube-system")},
		"leases elsewhere":     {[]string{"--set", "leaderElection.resourceNamespace=rehome"}, all("rehome")},
		"requests and measures": {[]string{"--set", "requests.enabled=true", "--set-json", measured}, map[string][]string{
			"rehome/rehome": {actuator, maintenance, measures, requests, watcher, "Role/rehome-actuator in kube-system",
				"Role/rehome-maintenance in kube-system", "Role/rehome-prometheus-token in monitoring", "Role/rehome-watcher in kube-system"},
		}},
		"each role by itself": {[]string{"--set", "mode=distributed,nats.enabled=true,requests.enabled=true"}, map[string][]string{
			"rehome/rehome-watcher":     {requests, watcher, "Role/rehome-watcher in kube-system"},
			"rehome/rehome-actuator":    {actuator, "Role/rehome-actuator in kube-system"},
			"rehome/rehome-maintenance": {maintenance, "Role/rehome-maintenance in kube-system"},
			"rehome/rehome-setup":       {setup},
		}},
		"each role by itself, with metrics that ask who comes": {
			[]string{"--set", "mode=distributed,nats.enabled=true,metrics.tls=self-signed,metrics.auth=true"}, map[string][]string{
				"rehome/rehome-watcher":     {requests, watcher, "Role/rehome-watcher in kube-system"},
				"rehome/rehome-actuator":    {actuator, requests, "Role/rehome-actuator in kube-system"},
				"rehome/rehome-maintenance": {maintenance, requests, "Role/rehome-maintenance in kube-system"},
				"rehome/rehome-setup":       {setup},
			}},
		"each role by itself, with measures": {
			[]string{"--set", "mode=distributed,nats.enabled=true", "--set-json", measured}, map[string][]string{
				"rehome/rehome-watcher": {measures, watcher, "Role/rehome-prometheus-token in monitoring",
					"Role/rehome-watcher in kube-system"},
				"rehome/rehome-actuator": {actuator, "Role/rehome-actuator in kube-system"},
				"rehome/rehome-maintenance": {maintenance, "Role/rehome-maintenance in kube-system",
					"Role/rehome-prometheus-token in monitoring"},
				"rehome/rehome-setup": {setup},
			}},
		"rights that are made elsewhere": {[]string{"--set", "rbac.create=false"}, map[string][]string{}},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			if got := bound(t, rendered(t, "rehome", c.args...)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestTokensAreMountedOnlyWhereNeeded looks at pods and at their accounts.
func TestTokensAreMountedOnlyWhereNeeded(t *testing.T) {
	all := rendered(t, "rehome", "--values", combinations(t)["distributed"])
	got, want := map[string]bool{}, map[string]bool{}
	for _, o := range all {
		switch o.GetKind() {
		case "ServiceAccount":
			got["account "+o.GetName()] = *into[corev1.ServiceAccount](t, o).AutomountServiceAccountToken
		case "Deployment":
			got["pods of "+o.GetName()] = *into[appsv1.Deployment](t, o).Spec.Template.Spec.AutomountServiceAccountToken
		case "StatefulSet":
			got["pods of "+o.GetName()] = *into[appsv1.StatefulSet](t, o).Spec.Template.Spec.AutomountServiceAccountToken
		}
	}
	for _, name := range []string{"watcher", "actuator", "maintenance", "functions", "dispatcher"} {
		token := name == "watcher" || name == "actuator" || name == "maintenance"
		want["account rehome-"+name], want["pods of rehome-"+name] = token, token
	}
	want["account rehome-setup"], want["pods of rehome-nats"] = true, false
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestCRDsAreKept compares the CRDs with deploy/crds, except for the annotation that makes helm keep them.
func TestCRDsAreKept(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "deploy/crds/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := rendered(t, "rehome")
	compared := 0
	for _, file := range files {
		for _, want := range parse(t, read(t, strings.TrimPrefix(file, root+"/"))) {
			if want.GetKind() == "Kustomization" {
				continue
			}
			got := all.one(t, want.GetKind(), want.GetName())
			if want.GetKind() == "CustomResourceDefinition" {
				annotations := want.GetAnnotations()
				annotations["helm.sh/resource-policy"] = "keep"
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
	for _, o := range rendered(t, "rehome", "--set", "crds.keep=false") {
		if o.GetAnnotations()["helm.sh/resource-policy"] != "" {
			t.Errorf("%s %s is kept", o.GetKind(), o.GetName())
		}
	}
}
