package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/watcher"
)

const (
	// mostWork limits concurrent explanations and simulations, because each may evaluate the whole cluster.
	mostWork = 2
	// workTimeout limits each of them, and the wait for its turn.
	workTimeout = 30 * time.Second
	// mostWaitingWork limits how many of one user wait. A page that shows another pod cancels its call and starts the next one.
	mostWaitingWork = 4
)

func (s *Server) registerExplanations(a huma.API) {
	huma.Register(a, huma.Operation{
		OperationID: "explain-pod", Method: http.MethodGet, Path: "/v1/pods/{namespace}/{name}",
		Summary:     "History of a pod, strategies that would move it, and rules that protect it",
		Description: "Users without the right to see everything get only its verdicts and the rules that protect it.",
	}, answer(s, s.explainPod))
	huma.Register(a, huma.Operation{
		OperationID: "explain-node", Method: http.MethodGet, Path: "/v1/nodes/{name}",
		Summary: "Pods of a node that cannot move now, and the reasons",
	}, answer(s, s.explainNode))
	huma.Register(a, huma.Operation{
		OperationID: "explain-workload", Method: http.MethodGet, Path: "/v1/workloads/{kind}/{namespace}/{name}",
		Summary: "Possible nodes for the pods of a workload, and the limits that apply",
	}, answer(s, s.explainWorkload))
}

// sources are the caches, the policy in force, and the bus.
func (s *Server) sources() explain.Sources {
	p := s.Policy()
	return explain.Sources{Cluster: cached{s}, Policy: &p, Bus: s.Bus}
}

// cached reads the cluster from the caches. It implements [explain.Cluster].
type cached struct{ *Server }

func (c cached) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.Cluster.Pod(namespace, name), nil
}

func (c cached) Workload(_ context.Context, pod *corev1.Pod) (*schemas.ObjectRef, error) {
	p, _ := c.Cluster.Workloads().Pod(pod.UID)
	if p.Workload.UID == "" {
		return nil, nil
	}
	return &p.Workload, nil
}

func (c cached) Pods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	return c.Cluster.PodsInNamespace(namespace), nil
}

func (c cached) Budgets(_ context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	return c.Cluster.BudgetsInNamespace(namespace), nil
}

func (c cached) Round(ctx context.Context, p policy.Policy) (simulate.Config, []metav1.Object, error) {
	round := simulate.Config{Policy: p, Functions: functions.All(), Now: time.Now, MinorVersion: c.Cluster.MinorVersion()}
	var err error
	round.Loads.Nodes, round.Loads.Pods, err = watcher.Measure(ctx, c.Client, p)
	return round, c.Cluster.Copies(), err
}

// work calls f when fewer than mostWork calls are in progress, and none of the same user. It refuses at once when mostWaitingWork
// calls of the user wait.
func (s *Server) work(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	u := callOf(ctx).user
	end, ok := s.atWork.Take(ctx, u.requester())
	if !ok {
		return serve.Refuse(http.StatusTooManyRequests, "other explanations or simulations of user %.200s are in progress, "+
			"and one at a time is the limit; try again later", u.Username).After(retryAfter)
	}
	defer end()
	select {
	case s.working <- struct{}{}:
		defer func() { <-s.working }()
	case <-ctx.Done():
		return serve.Refuse(http.StatusTooManyRequests, "%d explanations and simulations are in progress, which is the limit; "+
			"try again later", mostWork).After(retryAfter)
	}
	err := f(ctx)
	switch {
	case errors.Is(err, explain.ErrNothing):
		return serve.Refuse(http.StatusNotFound, "%w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return serve.Refuse(http.StatusServiceUnavailable, "it takes longer than %v, which is the limit", workTimeout).After(retryAfter)
	}
	return err
}

type podInput struct {
	Namespace string `path:"namespace" maxLength:"63"`
	Name      string `path:"name" maxLength:"253"`
	Since     string `query:"since" doc:"start the history this long ago, such as 1h, or at this time"`
}

type podOutput struct{ Body explain.Explanation }

func (s *Server) explainPod(ctx context.Context, in *podInput) (*podOutput, error) {
	u := callOf(ctx).user
	since, err := timeOf(in.Since, time.Now())
	if err != nil {
		return nil, err
	}
	if err := s.mayGet(ctx, u, "pods", in.Namespace); err != nil {
		return nil, err
	}
	a, err := s.access(ctx, u)
	if err != nil {
		return nil, err
	}
	out := &podOutput{}
	err = s.work(ctx, func(ctx context.Context) (err error) {
		out.Body, err = explain.Pod(ctx, s.sources(), in.Namespace, in.Name, since)
		return err
	})
	switch {
	case a.full():
	case errors.Is(err, explain.ErrNothing):
		err = serve.Refuse(http.StatusNotFound, "pod %s/%s: %w", in.Namespace, in.Name, explain.ErrNothing)
	case err == nil:
		a.confine(&out.Body)
	}
	return out, err
}

// confine removes the parts of an explanation that its user may not see elsewhere: changes of invisible pods, intents without a
// verdict, opinions about other pods and nodes, records about the whole cluster, and the texts of errors.
func (a access) confine(x *explain.Explanation) {
	hideReasons(x.Unknown)
	for i := range x.History {
		life := &x.History[i]
		var chains []explain.Chain
		for _, c := range life.Chains {
			if c.Delta != nil && (c.Delta.Object.Kind != "Pod" || !a.sees(c.Delta.Object.Namespace)) {
				c.Delta = nil
			}
			var steps []explain.Step
			for _, s := range c.Steps {
				if s.Outcome != "" {
					steps = append(steps, s)
				}
			}
			if c.Steps = steps; len(steps) > 0 {
				chains = append(chains, c)
			}
		}
		life.Chains = append([]explain.Chain{}, chains...)
	}
	x.Opinions, x.Replacement, x.Held.Maintenances, x.Held.Storm, x.Held.WorkloadBreakers = nil, "", nil, nil, nil
}

// hideReasons replaces the texts of errors, which can name addresses and Secrets.
func hideReasons(unknown []explain.Unknown) {
	for i := range unknown {
		unknown[i].Why = "it cannot be read; users who may see everything get the reason"
	}
}

type nodeInput struct {
	Name string `path:"name" maxLength:"253"`
}

type nodeOutput struct{ Body explain.NodeExplanation }

func (s *Server) explainNode(ctx context.Context, in *nodeInput) (*nodeOutput, error) {
	if err := s.maySeeAll(ctx, callOf(ctx).user); err != nil {
		return nil, err
	}
	out := &nodeOutput{}
	return out, s.work(ctx, func(ctx context.Context) (err error) {
		out.Body, err = explain.Node(ctx, s.sources(), in.Name)
		return err
	})
}

type workloadInput struct {
	Kind      string `path:"kind" maxLength:"63" doc:"such as Deployment"`
	Namespace string `path:"namespace" maxLength:"63"`
	Name      string `path:"name" maxLength:"253"`
}

type workloadOutput struct{ Body explain.WorkloadExplanation }

func (s *Server) explainWorkload(ctx context.Context, in *workloadInput) (*workloadOutput, error) {
	u := callOf(ctx).user
	if err := s.mayGet(ctx, u, "pods", in.Namespace); err != nil {
		return nil, err
	}
	a, err := s.access(ctx, u)
	if err != nil {
		return nil, err
	}
	out := &workloadOutput{}
	err = s.work(ctx, func(ctx context.Context) (err error) {
		out.Body, err = explain.Workload(ctx, s.sources(), in.Kind, in.Namespace, in.Name)
		return err
	})
	if x := &out.Body; err == nil && !a.full() {
		x.Held.Storm, x.Held.WorkloadBreakers, x.Limits = nil, nil, []explain.LimitUse{}
		hideReasons(x.Unknown)
		for i := range x.Pods {
			x.Pods[i].Replacement = ""
		}
	}
	return out, err
}
