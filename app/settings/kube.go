package settings

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/maintenance/apply"
)

// NewClient makes a client of the API server, with requests in protobuf. It does not connect.
func NewClient(s Settings) (kubernetes.Interface, error) {
	return newClient(s, func(config *rest.Config) (kubernetes.Interface, error) {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		return kubernetes.NewForConfig(config)
	})
}

// NewKindsClient makes a client that writes the kinds of Rehome. It does not connect: the API server may not know them.
func NewKindsClient(s Settings) (rest.Interface, error) {
	return newClient(s, func(config *rest.Config) (rest.Interface, error) { return apply.NewClient(config) })
}

// NewDynamicClient makes a client that reads the kinds of Rehome. It does not connect: the API server may not know them.
func NewDynamicClient(s Settings) (dynamic.Interface, error) {
	return newClient(s, func(config *rest.Config) (dynamic.Interface, error) { return dynamic.NewForConfig(config) })
}

func newClient[C any](s Settings, make func(*rest.Config) (C, error)) (client C, err error) {
	config, err := clusterConfig(s)
	if err != nil {
		return client, err
	}
	if client, err = make(config); err != nil {
		return client, usage.Errorf("client of %s: %w", config.Host, err)
	}
	return client, nil
}

// clusterConfig reads the kubeconfig. The client has no rate limit: the policy limits evictions, and priority and fairness limits
// requests.
func clusterConfig(s Settings) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: s.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, usage.Errorf("no cluster to connect to: %w", err)
	}
	config.UserAgent = "rehome/" + Version
	config.QPS = -1
	return config, nil
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

// The leases, one for each role of which only one may be active.
const (
	WatcherLease     = "rehome-watcher"
	ActuatorLease    = "rehome-actuator"
	MaintenanceLease = "rehome-maintenance"
)

// InTime returns the holder of a lease that was renewed in time, or nothing.
func InTime(s coordinationv1.LeaseSpec) string {
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return ""
	}
	if time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
		return ""
	}
	return *s.HolderIdentity
}
