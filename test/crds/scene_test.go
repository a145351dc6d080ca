package crds

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	yaml "go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// root is the root of the repository.
const root = "../.."

// The users of the tests.
const (
	janitor   = "janitor"   // may delete all nodes
	porter    = "porter"    // may delete the nodes worker-0 to worker-11
	bystander = "bystander" // may delete none
	tenant    = "tenant"    // has the role edit in the namespace shop
)

// shared has the CRDs. Each test uses other names.
var shared = clustertest.Shared{Start: func(ctx context.Context) (*cluster.Cluster, error) {
	c, err := cluster.Start(ctx, cluster.Options{Users: []cluster.User{{Name: janitor}, {Name: porter}, {Name: bystander}, {Name: tenant}}})
	if err != nil {
		return nil, err
	}
	return c, errors.Join(c.AddKinds(ctx), grant(ctx, c))
}}

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// admin returns a client of the administrator.
func admin(t *testing.T) dynamic.Interface {
	t.Helper()
	return clientOf(t, shared.Cluster(t).RESTConfig())
}

// as returns a client of a user.
func as(t *testing.T, user string) dynamic.Interface {
	t.Helper()
	config, err := shared.Cluster(t).UserConfig(user)
	expect.Must(t, err)
	return clientOf(t, config)
}

func clientOf(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	expect.Must(t, err)
	return client
}

// maintenance returns a NodeMaintenance with a spec in YAML.
func maintenance(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "NodeMaintenance", name, spec)
}

func object(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": plain(fields),
	}}
	if kind == "DrainRule" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

// plain returns a YAML value like JSON, with whole numbers as int64.
func plain(value any) any {
	switch v := value.(type) {
	case int:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return value
}

// examples returns the objects in docs/examples/maintenance, in the order of the files.
func examples(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs/examples/maintenance/*.yaml"))
	expect.Must(t, err)
	var all []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.Must(t, err)
		all = append(all, manifesttest.Objects(t, text)...)
	}
	return all
}

// in returns the resource client for an object.
func in(client dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	switch o.GetKind() {
	case "DrainRule":
		return client.Resource(v1alpha1.GroupVersion().WithResource(v1alpha1.DrainRules)).Namespace(o.GetNamespace())
	case "ClusterDrainRule":
		return client.Resource(v1alpha1.GroupVersion().WithResource(v1alpha1.ClusterDrainRules))
	}
	return client.Resource(v1alpha1.GroupVersion().WithResource(v1alpha1.NodeMaintenances))
}

// tried is a dry run that rejects unknown fields, like kubectl.
var tried = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}

// causes returns the errors of the API server with their fields, in order. It fails the test for other errors.
func causes(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonInvalid {
		t.Fatalf("an error of another kind: %v", err)
	}
	var all []string
	for _, cause := range status.Status().Details.Causes {
		all = append(all, cause.Field+": "+cause.Message)
	}
	return all
}
