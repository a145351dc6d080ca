package actuator

import (
	"github.com/rehome-dev/rehome/actuator/move"
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
	return o.asked().Method == schemas.UseRestart || o.Strategy == schemas.MaintenanceStrategy && !p.Maintenance.RestartAsUsual()
}

// restartFor is the method by which the workload of a pod makes a replacement first, as the policy, the request and the
// maintenance want it. nil: there is none.
func (a *Actuator) restartFor(open Open) move.Method {
	all, asked := a.policy.Load(), open.asked()
	p, preferred := all.Restart, prefersRestart(all, open)
	if a.restarts == nil || p.Workloads == "" && !preferred {
		return nil
	}
	if preferred {
		p = p.Preferred()
		p.AgainAlone = open.Strategy == schemas.MaintenanceStrategy
	}
	return a.restarts.With(p, asked.DryRun)
}
