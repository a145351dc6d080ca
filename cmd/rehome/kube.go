package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// newClient makes a client of the API server. It does not connect. Requests are in protobuf and not held back on this
// side: evictions are limited by the policy, and the API server limits everybody by priority and fairness.
func newClient(s settings) (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: s.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, usageError{fmt.Errorf("no cluster to connect to: %w", err)}
	}
	config.UserAgent = "rehome/" + version
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, usageError{fmt.Errorf("client of %s: %w", config.Host, err)}
	}
	return client, nil
}

// apiServerReady asks the API server whether it serves, within two seconds.
func apiServerReady(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	return nil
}
