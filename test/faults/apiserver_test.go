package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

func apiServerSituations() []situation {
	paused := func(component string) situation {
		return situation{"pause of " + component, 4 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			pid := r.cluster.Pids()[component]
			if pid == 0 { // which would be this process
				return nil, fmt.Errorf("%s does not run", component)
			}
			return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
		}}
	}
	leader := func(name string, take func(context.Context, *run, string) error) situation {
		return situation{name, 6 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
			lease := []string{"rehome-actuator", "rehome-watcher", "rehome-maintenance"}[random.IntN(3)]
			return nothing, insist(func() error {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				return take(ctx, r, lease)
			})
		}}
	}
	return []situation{
		{"restart of the API server", 4 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			r.mu.Lock()
			r.restarts = append(r.restarts, time.Now())
			r.mu.Unlock()
			return func() error {
				return errors.Join(r.cluster.StartAPIServer(context.Background()), r.cluster.StartScheduler())
			}, errors.Join(r.cluster.StopScheduler(), r.cluster.StopAPIServer())
		}},
		paused(binaries.APIServer), paused(binaries.Etcd),
		{"restart of the controllers", 6 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			return r.cluster.StartControllers, r.cluster.StopControllers()
		}},
		leader("lease deleted", func(ctx context.Context, r *run, lease string) error {
			return r.cluster.Client().CoordinationV1().Leases(leases).Delete(ctx, lease, metav1.DeleteOptions{})
		}),
		leader("lease taken", func(ctx context.Context, r *run, lease string) error {
			patch := []byte(`{"spec":{"holderIdentity":"` + namespace + `/nobody","renewTime":"` + time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") + `"}}`)
			_, err := r.cluster.Client().CoordinationV1().Leases(leases).Patch(ctx, lease, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}),
	}
}
