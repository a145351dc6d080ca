package actuator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/restart"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// asked is what a request says about the move. Of other strategies nothing of it counts.
func (o Open) asked() schemas.Asked {
	if o.Strategy != schemas.RequestStrategy || o.Intent.Asked == nil {
		return schemas.Asked{}
	}
	return *o.Intent.Asked
}

// pretended says whether the move is only tried out, because the actuator changes nothing or the request says so.
func (a *Actuator) pretended(o Open) bool { return a.cfg.DryRun || o.asked().DryRun }

// prefersRestart says whether a replacement is to be made first wherever that can be, and not only where the policy says so.
func prefersRestart(p *policy.Policy, o Open) bool {
	return o.asked().Method == schemas.UseRestart || o.Strategy == schemas.MaintenanceStrategy && !p.Maintenance.RestartAsUsual
}

// restart is the way for the pod by which its workload makes a replacement first, with its workload, as the policy, the
// request and the maintenance want it. nil: there is none.
func (a *Actuator) restart(
	ctx context.Context, open Open, pod *corev1.Pod,
) (move.Method, schemas.Method, *schemas.ObjectRef, error) {
	all, asked := a.policy.Load(), open.asked()
	p, preferred := all.Restart, prefersRestart(all, open)
	if a.restarts == nil || p.Workloads == "" && !preferred {
		return nil, "", nil, nil
	}
	if !preferred && !asked.DryRun {
		return a.restarts.For(ctx, pod)
	}
	if preferred {
		p = p.Preferred()
		p.AgainAlone = open.Strategy == schemas.MaintenanceStrategy
	}
	config := a.restarting
	config.Policy = func() policy.Restart { return p }
	config.DryRun = config.DryRun || asked.DryRun
	by, name, workload, err := restart.New(config).For(ctx, pod)
	if apierrors.IsForbidden(err) && preferred {
		return nil, "", nil, nil // who runs a policy without restarts need not give the rights that they take
	}
	return by, name, workload, err
}
