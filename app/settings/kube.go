package settings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/transport"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/maintenance/apply"
)

// Client is a client of the API server.
type Client = kubernetes.Interface

// NewClient returns a client of the API server that prefers protobuf. Each of wrap wraps its transport. It does not
// connect.
func NewClient(s Settings, wrap ...transport.WrapperFunc) (kubernetes.Interface, error) {
	return newClient(s, func(config *rest.Config) (kubernetes.Interface, error) {
		config.Wrap(transport.Wrappers(wrap...))
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		return kubernetes.NewForConfig(config)
	})
}

// NewKindsClient returns a client that writes the kinds of Rehome. It does not connect: the API server may not serve
// them.
func NewKindsClient(s Settings) (rest.Interface, error) {
	return newClient(s, func(config *rest.Config) (rest.Interface, error) { return apply.NewClient(config) })
}

// NewDynamicClient returns a client that reads the kinds of Rehome. It does not connect: the API server may not serve
// them.
func NewDynamicClient(s Settings) (dynamic.Interface, error) {
	return newClient(s, func(config *rest.Config) (dynamic.Interface, error) { return dynamic.NewForConfig(config) })
}

func newClient[C any](s Settings, make func(*rest.Config) (C, error)) (client C, err error) {
	config, err := ClusterConfig(s)
	if err != nil {
		return client, err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return relist{next} })
	if client, err = make(config); err != nil {
		return client, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	return client, nil
}

// relist makes informers list again after an outage of the API server. client-go would continue a watch from its last
// resourceVersion. After etcd was restored to an older state, the API server has not reached that version, and never sends the
// changes before it. A list recovers from that. It costs little: an API server that has started has no history of changes, and
// lets most watches expire.
type relist struct{ next http.RoundTripper }

// errWatch must not look like an error after which client-go repeats a watch, such as a refused connection or the end of one.
var errWatch = errors.New("the API server did not answer a watch; listing again")

// RoundTrip replaces the error of a watch that does not begin with a list.
func (r relist) RoundTrip(q *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(q)
	if parameters := q.URL.Query(); err != nil && parameters.Has("watch") && !parameters.Has("sendInitialEvents") {
		err = errWatch
	}
	return response, err
}

// ClusterConfig returns how to reach the cluster of the kubeconfig. The client has no rate limit: the policy limits evictions,
// and priority and fairness limits requests.
func ClusterConfig(s Settings) (*rest.Config, error) {
	config, err := kubeconfig(s).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to connect to: %w", err)
	}
	config.UserAgent = "rehome/" + Version
	config.QPS = -1
	return config, nil
}

func kubeconfig(s Settings) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.Context})
}

// ContextNamespace returns the namespace of the context, as kubectl does. Without one, and without a kubeconfig, it is default.
func ContextNamespace(s Settings) (string, error) {
	namespace, _, err := kubeconfig(s).Namespace()
	if clientcmd.IsEmptyConfig(err) {
		return metav1.NamespaceDefault, nil
	}
	return namespace, err
}

// Contexts returns the contexts of the kubeconfig, in no order. Without a kubeconfig there are none.
func Contexts(s Settings) []string {
	config, err := kubeconfig(s).RawConfig()
	if err != nil {
		return nil
	}
	return slices.Collect(maps.Keys(config.Contexts))
}

// APIServerReady asks the API server whether it serves, within two seconds.
func APIServerReady(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	return nil
}

// ReadInstallation returns the UID of the namespace kube-system, which identifies the cluster. It lists with a
// selector, because all roles may list namespaces.
func ReadInstallation(ctx context.Context, s Settings, client kubernetes.Interface) (bus.Installation, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + metav1.NamespaceSystem,
	})
	if err == nil && len(found.Items) == 0 {
		err = errors.New("not found")
	}
	if err != nil {
		return bus.Installation{}, fmt.Errorf("identify the cluster: namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return bus.Installation{Name: s.Installation, Cluster: string(found.Items[0].UID), ClusterName: s.Cluster}, nil
}

// The leases in the installation rehome, one for each role with a single active process; see [Settings.LeaseName].
const (
	WatcherLease     = "rehome-watcher"
	ActuatorLease    = "rehome-actuator"
	MaintenanceLease = "rehome-maintenance"
)

// CurrentHolder returns the holder of a lease that was renewed in time, or "".
func CurrentHolder(s coordinationv1.LeaseSpec) string {
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return ""
	}
	if time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
		return ""
	}
	return *s.HolderIdentity
}

type listing struct {
	kind string
	list pager.ListPageFunc
}

// listings returns the kinds that decisions need.
func listings(c kubernetes.Interface) []listing {
	core, storage := c.CoreV1(), c.StorageV1()
	return []listing{
		{"nodes", paged(core.Nodes().List)},
		{"pods", paged(core.Pods(metav1.NamespaceAll).List)},
		{"poddisruptionbudgets", paged(c.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List)},
		{"namespaces", paged(core.Namespaces().List)},
		{"persistentvolumeclaims", paged(core.PersistentVolumeClaims(metav1.NamespaceAll).List)},
		{"persistentvolumes", paged(core.PersistentVolumes().List)},
		{"storageclasses", paged(storage.StorageClasses().List)},
		{"csinodes", paged(storage.CSINodes().List)},
		{"csidrivers", paged(storage.CSIDrivers().List)},
		{"csistoragecapacities", paged(storage.CSIStorageCapacities(metav1.NamespaceAll).List)},
		{"volumeattachments", paged(storage.VolumeAttachments().List)},
		{"priorityclasses", paged(c.SchedulingV1().PriorityClasses().List)},
	}
}

func paged[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	}
}

// ReadCluster lists all objects that decisions depend on, page by page.
func ReadCluster(ctx context.Context, c kubernetes.Interface) ([]metav1.Object, error) {
	var all []metav1.Object
	for _, l := range listings(c) {
		err := pager.New(l.list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			all = append(all, object)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", l.kind, err)
		}
	}
	return all, nil
}
