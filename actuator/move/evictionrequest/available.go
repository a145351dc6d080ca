package evictionrequest

import (
	"context"
	"slices"
	"time"

	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
)

const (
	// believed is how long an answer of discovery is taken for granted. API servers begin and cease to serve an alpha group
	// when they are restarted with other flags, which is rare. Until that is noticed, pods are evicted, or one request fails,
	// which is noticed at once.
	believed = 5 * time.Minute
	// doubted is how long what was known before is kept when there is no answer.
	doubted = 30 * time.Second
	// discoveryTimeout bounds one question.
	discoveryTimeout = 5 * time.Second
)

// version is the API's.
const version = lifecycle.GroupName + "/v1alpha1"

// Available says whether the API server serves what this method needs. It asks the API server at most every five minutes. A
// missing right counts as no. Without an answer, the last one holds for 30 seconds more, or no if there was none. Only one call at
// a time asks; the others wait for it, at most five seconds.
func (m *Method) Available(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	if now.Before(m.until) {
		return m.served
	}
	served, err := m.discover(ctx)
	switch {
	case err == nil:
		m.served, m.until = served, now.Add(believed)
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		m.served, m.until = false, now.Add(believed)
	default:
		m.until = now.Add(doubted)
	}
	return m.served
}

// forget makes the next question one for the API server.
func (m *Method) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = time.Time{}
}

// discover asks the API server.
func (m *Method) discover(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	client := discovery.ToDiscoveryInterfaceWithContext(m.cfg.Client.Discovery())
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, version)
	if err != nil {
		return false, err
	}
	missing := map[string][]string{"evictionrequests": {"create", "delete", "get", "patch"}, "evictions": {"list"}}
	for _, r := range list.APIResources {
		missing[r.Name] = slices.DeleteFunc(missing[r.Name], func(verb string) bool { return slices.Contains(r.Verbs, verb) })
	}
	return len(missing["evictionrequests"]) == 0 && len(missing["evictions"]) == 0, nil
}
