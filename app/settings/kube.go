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

// NewClient makes a client of the API server. It does not connect. Requests are in protobuf.
func NewClient(s Settings) (kubernetes.Interface, error) {
	config, err := clusterConfig(s)
	if err != nil {
		return nil, err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, usage.Errorf("client of %s: %w", config.Host, err)
	}
	return client, nil
}

// NewKindsClient makes a client of the kinds of Rehome itself. It does not connect: the API server need not know them.
func NewKindsClient(s Settings) (rest.Interface, error) {
	config, err := clusterConfig(s)
	if err != nil {
		return nil, err
	}
	client, err := apply.NewClient(config)
	if err != nil {
		return nil, usage.Errorf("client of %s: %w", config.Host, err)
	}
	return client, nil
}

// NewDynamicClient makes a client that reads the kinds of Rehome itself. It does not connect: the API server need not know them.
func NewDynamicClient(s Settings) (dynamic.Interface, error) {
	config, err := clusterConfig(s)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, usage.Errorf("client of %s: %w", config.Host, err)
	}
	return client, nil
}

// clusterConfig says how to reach the API server. Requests are not held back on this side: evictions are limited by the
// policy, and the API server limits everybody by priority and fairness.
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

// InTime is who holds a lease and has renewed it in time; empty: nobody.
func InTime(s coordinationv1.LeaseSpec) string {
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return ""
	}
	if time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
		return ""
	}
	return *s.HolderIdentity
}
