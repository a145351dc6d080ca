package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
)

// versionTimeout bounds the request for the version, which delays the start.
const versionTimeout = 5 * time.Second

// ReadMinorVersion asks the API server for its minor version: 36 for Kubernetes 1.36.
//
// It stands for the version of the scheduler, which may be one minor version older during an upgrade of the control plane. A
// wrong version affects only pods whose answer differs between the two releases: a move is deferred or in vain, or a reservation
// is on the wrong node. A replacement whose affinity selects namespaces without a label can also stay pending.
func ReadMinorVersion(ctx context.Context, client kubernetes.Interface) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	version, err := discovery.ToServerVersionInterfaceWithContext(client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("version of the API server: %w", err)
	}
	return parseMinor(version.Minor)
}

// parseMinor parses a minor version. Some providers add a plus sign to mark their own build.
func parseMinor(text string) (int, error) {
	minor, err := strconv.Atoi(strings.TrimSuffix(text, "+"))
	if err != nil {
		return 0, fmt.Errorf("version of the API server: minor version %q is not a number", text)
	}
	return minor, nil
}

// learnVersion asks the API server for its version. Without an answer the version stays unknown.
func (c *Cache) learnVersion(ctx context.Context) {
	minor, err := ReadMinorVersion(ctx, c.client)
	if err != nil {
		c.log.Warn("predicting like the newest known scheduler", "error", err)
		return
	}
	c.SetMinorVersion(minor)
}

// MinorVersion returns the minor version of the scheduler, see [fit.Cluster]. 0 means unknown.
func (c *Cache) MinorVersion() int {
	c.capacity.mu.RLock()
	defer c.capacity.mu.RUnlock()
	return c.capacity.fit.MinorVersion
}

// SetMinorVersion sets the minor version of the scheduler. A cache with informers asks for it in [Cache.Run].
func (c *Cache) SetMinorVersion(minor int) {
	c.capacity.lock()
	defer c.capacity.mu.Unlock()
	c.capacity.fit.MinorVersion = minor
}
