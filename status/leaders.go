package status

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/app/settings"
)

// Leader is the holder of the lease of a role.
type Leader struct {
	Lease  string    `json:"lease"`
	Holder string    `json:"holder"` // empty means none
	Since  time.Time `json:"since,omitzero"`
}

// readLeaders reads the leases.
func readLeaders(ctx context.Context, s settings.Settings, client settings.Client) (_ []Leader, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if client == nil {
		if client, err = settings.NewClient(s); err != nil {
			return nil, err
		}
	}
	var out []Leader
	for _, role := range []string{settings.WatcherLease, settings.ActuatorLease, settings.MaintenanceLease} {
		l := Leader{Lease: s.LeaseName(role)}
		lease, err := client.CoordinationV1().Leases(s.LeaseNamespace).Get(ctx, l.Lease, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("lease %s/%s: %w", s.LeaseNamespace, l.Lease, err)
		}
		if err == nil {
			if l.Holder = settings.CurrentHolder(lease.Spec); l.Holder != "" && lease.Spec.AcquireTime != nil {
				l.Since = lease.Spec.AcquireTime.UTC()
			}
		}
		out = append(out, l)
	}
	return out, nil
}
