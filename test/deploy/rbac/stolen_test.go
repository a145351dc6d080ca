package rbac

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// theft is one call with a stolen token. A body with a verb other than POST is a strategic merge patch.
type theft struct {
	name, verb, path, body string
	want                   string // part of the refusal; empty: it is allowed
}

const (
	deployment = "/apis/apps/v1/namespaces/stolen/deployments/api"
	pod        = "/api/v1/namespaces/stolen/pods/POD"
	otherCall  = "may evict pods and restart Deployments, not "
	inTemplate = "may change nothing in a pod template but the annotation kubectl.kubernetes.io/restartedAt"
	inSpec     = "may change only the replicas and the template in the spec of a Deployment"
	inMetadata = "may not change labels, finalizers, or owners"
	annotated  = "may change no annotations but "
	scaled     = "may add one replica to a Deployment for a surge, and take this replica back, nothing else"
	container  = `{"spec":{"template":{"spec":{"containers":[{"name":"main",%s}]}}}}`
	workload   = `{"apiVersion":"%s","kind":"%s","metadata":{"name":"new"},"spec":{%s"template":{"metadata":{"labels":{"app":"new"}},` +
		`"spec":{"restartPolicy":"%s","containers":[{"name":"main","image":"evil:v1"}]}}}}`
	selects = `"selector":{"matchLabels":{"app":"new"}},`
	surge   = `{"metadata":{"annotations":{"rehome.dev/restarted-at":"t","rehome.dev/surge-replicas":"%d"}},"spec":{"replicas":%d}}`
	unsurge = `{"metadata":{"annotations":{"rehome.dev/surge-replicas":null}},"spec":{"replicas":%d}}`
)

// thefts are calls about a Deployment with three replicas.
func thefts() []theft {
	return []theft{
		{"a restart", "PATCH", deployment, `{"metadata":{"annotations":{"rehome.dev/restarted-at":"t","rehome.dev/restarted-for":"p",
			"rehome.dev/restart-undo":"u"}},"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"t"}}}}}`, ""},
		{"a surge", "PATCH", deployment, fmt.Sprintf(surge, 3, 4), ""},
		{"the deletion cost of a pod", "PATCH", pod, `{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-1",
			"rehome.dev/surge-cost-before":""}}}`, ""},
		{"an eviction", "POST", pod + "/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"POD"}}`, ""},

		{"another image", "PATCH", deployment, fmt.Sprintf(container, `"image":"evil:v1"`), inTemplate},
		{"a command", "PATCH", deployment, fmt.Sprintf(container, `"command":["evil"]`), inTemplate},
		{"an environment", "PATCH", deployment, fmt.Sprintf(container, `"env":[{"name":"a","value":"b"}]`), inTemplate},
		{"privileges", "PATCH", deployment, fmt.Sprintf(container, `"securityContext":{"privileged":true}`), inTemplate},
		{"a service account", "PATCH", deployment, `{"spec":{"template":{"spec":{"serviceAccountName":"evil"}}}}`, inTemplate},
		{"a volume", "PATCH", deployment, `{"spec":{"template":{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/"}}]}}}}`, inTemplate},
		{"a label of the template", "PATCH", deployment, `{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`, inTemplate},
		{"an annotation of the template", "PATCH", deployment, `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`, inTemplate},
		{"an annotation less in the template", "PATCH", deployment, `{"spec":{"template":{"metadata":{"annotations":{"kept":null}}}}}`, inTemplate},
		{"another value in the template", "PATCH", deployment, `{"spec":{"template":{"metadata":{"annotations":{"kept":"b"}}}}}`, inTemplate},
		{"an annotation", "PATCH", deployment, `{"metadata":{"annotations":{"a":"b"}}}`, annotated},
		{"an annotation less", "PATCH", deployment, `{"metadata":{"annotations":{"kept":null}}}`, annotated},
		{"a label", "PATCH", deployment, `{"metadata":{"labels":{"a":"b"}}}`, inMetadata},
		{"a finalizer", "PATCH", deployment, `{"metadata":{"finalizers":["example.com/a"]}}`, inMetadata},
		{"an owner", "PATCH", deployment, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`, inMetadata},
		{"a pause", "PATCH", deployment, `{"spec":{"paused":true}}`, inSpec},
		{"another strategy", "PATCH", deployment, `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`, inSpec},
		{"no replicas", "PATCH", deployment, `{"spec":{"replicas":0}}`, scaled},
		{"one replica less", "PATCH", deployment, fmt.Sprintf(unsurge, 2), scaled},
		{"one replica more", "PATCH", deployment, `{"spec":{"replicas":4}}`, scaled},
		{"one replica more, with another number", "PATCH", deployment, fmt.Sprintf(surge, 2, 4), scaled},
		{"two replicas more", "PATCH", deployment, fmt.Sprintf(surge, 3, 5), scaled},
		{"the annotation of a surge alone", "PATCH", deployment, fmt.Sprintf(surge, 2, 3), scaled},
		{"a scale", "PATCH", deployment + "/scale", `{"spec":{"replicas":0}}`, otherCall + "UPDATE deployments/scale"},
		{"a deletion", "DELETE", deployment, "", otherCall + "DELETE deployments"},
		{"a Deployment", "POST", "/apis/apps/v1/namespaces/stolen/deployments",
			fmt.Sprintf(workload, "apps/v1", "Deployment", selects, "Always"), otherCall + "CREATE deployments"},
		{"a DaemonSet", "POST", "/apis/apps/v1/namespaces/stolen/daemonsets",
			fmt.Sprintf(workload, "apps/v1", "DaemonSet", selects, "Always"), otherCall + "CREATE daemonsets"},
		{"a StatefulSet", "PATCH", "/apis/apps/v1/namespaces/stolen/statefulsets/db", `{"spec":{"replicas":0}}`, otherCall + "UPDATE statefulsets"},
		{"a ReplicaSet", "DELETE", "/apis/apps/v1/namespaces/stolen/replicasets/RS", "", otherCall + "DELETE replicasets"},
		{"a Job", "POST", "/apis/batch/v1/namespaces/stolen/jobs", fmt.Sprintf(workload, "batch/v1", "Job", "", "Never"), otherCall + "CREATE jobs"},
		{"the image of a pod", "PATCH", pod, `{"spec":{"containers":[{"name":"main","image":"evil:v1"}]}}`, "may not change the spec of a pod"},
		{"a deadline of a pod", "PATCH", pod, `{"spec":{"activeDeadlineSeconds":1}}`, "may not change the spec of a pod"},
		{"a label of a pod", "PATCH", pod, `{"metadata":{"labels":{"app":null}}}`, inMetadata},
		{"an annotation of a pod", "PATCH", pod, `{"metadata":{"annotations":{"a":"b"}}}`, annotated},
		{"a status of a pod", "PATCH", pod + "/status", `{"status":{"phase":"Failed"}}`, otherCall + "UPDATE pods/status"},
		{"a container in a pod", "PATCH", pod + "/ephemeralcontainers",
			`{"spec":{"ephemeralContainers":[{"name":"e","image":"evil:v1"}]}}`, otherCall + "UPDATE pods/ephemeralcontainers"},
		{"a command in a pod", "POST", pod + "/exec?command=sh&stdin=true", "", otherCall + "CONNECT pods/exec"},
		{"the deletion of a pod", "DELETE", pod, "", otherCall + "DELETE pods"},
		{"a pod", "POST", "/api/v1/namespaces/stolen/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"},` +
			`"spec":{"containers":[{"name":"main","image":"evil:v1"}]}}`, otherCall + "CREATE pods"},
	}
}

// dryRun is the parameter of a dry run, which the API server has for all calls but exec.
func (c theft) dryRun() []string {
	if strings.Contains(c.path, "/exec") {
		return nil
	}
	return []string{"All"}
}

// stolen tries each call with the token of an account whose RBAC allows everything, so that only the admission policy refuses.
func stolen(t *testing.T, s *stage) {
	s.apply(t, "actuator", "all")
	ctx := t.Context()
	w, err := s.newWorld(ctx, "stolen")
	expect.Must(t, err)
	kept := map[string]string{"kept": "a"}
	expect.Must(t, w.deploy(ctx, "api", 3, func(d *appsv1.Deployment) { d.Annotations, d.Spec.Template.Annotations = kept, kept }))
	_, err = s.client.AppsV1().StatefulSets("stolen").Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none:v1"}}},
			},
		},
	}, metav1.CreateOptions{})
	expect.Must(t, err)
	for _, account := range []string{"rehome-actuator", "rehome"} {
		named := s.names(ctx, t) // the surges of the account before can have replaced a pod
		client := s.mighty(t, account)
		expect.Must(t, until(ctx, "the admission policy is in force for "+account, func() (bool, string) {
			err := call(ctx, client, theft{verb: "PATCH", path: deployment, body: `{"spec":{"paused":true}}`}, "All")
			return err != nil && strings.Contains(err.Error(), inSpec), fmt.Sprint(err)
		}))
		for _, c := range thefts() {
			c.path, c.body = named.Replace(c.path), named.Replace(c.body)
			err := call(ctx, client, c, c.dryRun()...)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, %s: got %v, want %q", account, c.name, err, c.want)
			}
			if err := call(ctx, s.client, c, c.dryRun()...); err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("%s is refused to the administrator: %v", c.name, err)
			}
		}
		repeated(ctx, t, client)
	}
}

// revoked deletes the account of the actuator and applies the manifests again. A token of the first account is of no use.
func revoked(t *testing.T, s *stage) {
	const account = "rehome-actuator"
	s.apply(t, "actuator")
	accounts, ctx := s.client.CoreV1().ServiceAccounts(namespace), t.Context()
	stolen, err := s.token(ctx, namespace, account)
	expect.Must(t, err)
	list := func(token string) error {
		return call(ctx, s.bearing(t, token), theft{verb: "GET", path: "/api/v1/pods"})
	}
	expect.Must(t, until(ctx, "the token is of use", func() (bool, string) { err := list(stolen); return err == nil, fmt.Sprint(err) }))
	expect.Must(t, accounts.Delete(ctx, account, metav1.DeleteOptions{}))
	s.apply(t, "actuator")
	expect.Must(t, until(ctx, "the token is refused", func() (bool, string) {
		err := list(stolen)
		return apierrors.IsUnauthorized(err), fmt.Sprint(err)
	}))
	fresh, err := s.token(ctx, namespace, account)
	expect.Must(t, err)
	expect.Must(t, until(ctx, "a new token is of use", func() (bool, string) { err := list(fresh); return err == nil, fmt.Sprint(err) }))
	if err := list(stolen); !apierrors.IsUnauthorized(err) {
		t.Errorf("the stolen token: got %v, want that it is refused", err)
	}
}

// repeated tries to get further than one replica by several calls.
func repeated(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()
	for _, c := range []theft{
		{"a surge", "PATCH", deployment, fmt.Sprintf(surge, 3, 4), ""},
		{"a second surge", "PATCH", deployment, fmt.Sprintf(surge, 4, 5), scaled},
		{"the annotation less", "PATCH", deployment, fmt.Sprintf(unsurge, 4), scaled},
		{"the annotation with another number", "PATCH", deployment, fmt.Sprintf(surge, 4, 4), scaled},
		{"two replicas less", "PATCH", deployment, fmt.Sprintf(unsurge, 2), scaled},
		{"the replica less", "PATCH", deployment, fmt.Sprintf(unsurge, 3), ""},
		{"another replica less", "PATCH", deployment, fmt.Sprintf(unsurge, 2), scaled},
	} {
		err := call(ctx, client, c)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// names replaces POD and RS by the names of a pod of the Deployment and of its ReplicaSet.
func (s *stage) names(ctx context.Context, t *testing.T) *strings.Replacer {
	t.Helper()
	var pods []corev1.Pod
	expect.Must(t, until(ctx, "there are three pods, and none is terminating", func() (bool, string) {
		list, err := s.client.CoreV1().Pods("stolen").List(ctx, metav1.ListOptions{LabelSelector: "app=api"})
		if err != nil {
			return false, err.Error()
		}
		pods = list.Items
		leaving := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		return len(pods) == 3 && !leaving, fmt.Sprintf("%d pods", len(pods))
	}))
	return strings.NewReplacer("POD", pods[0].Name, "RS", pods[0].OwnerReferences[0].Name)
}

// mighty is a client with the token of an account, which RBAC allows everything.
func (s *stage) mighty(t *testing.T, account string) kubernetes.Interface {
	t.Helper()
	bindings := s.client.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mighty-" + account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	expect.Must(t, err)
	t.Cleanup(func() {
		expect.Must(t, bindings.Delete(context.Background(), "mighty-"+account, metav1.DeleteOptions{}))
	})
	token, err := s.token(t.Context(), namespace, account)
	expect.Must(t, err)
	return s.bearing(t, token)
}

// bearing is a client with a token.
func (s *stage) bearing(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	admin := s.RESTConfig()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: admin.Host, TLSClientConfig: admin.TLSClientConfig, BearerToken: token})
	expect.Must(t, err)
	return client
}

// call makes the call. dryRun is All or nothing.
func call(ctx context.Context, client kubernetes.Interface, c theft, dryRun ...string) error {
	r := client.Discovery().RESTClient().Verb(c.verb).RequestURI(c.path)
	for _, value := range dryRun {
		r = r.Param("dryRun", value)
	}
	switch {
	case c.verb == http.MethodPatch:
		r = r.SetHeader("Content-Type", string(types.StrategicMergePatchType))
	case c.body != "":
		r = r.SetHeader("Content-Type", "application/json")
	}
	if c.body != "" {
		r = r.Body([]byte(c.body))
	}
	return r.Do(ctx).Error()
}
