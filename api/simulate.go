package api

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/watcher/scope"
)

const (
	// mostPolicy limits the text of a policy.
	mostPolicy = 1 << 20
)

func (s *Server) registerSimulation(a huma.API) {
	huma.Register(a, huma.Operation{
		OperationID: "simulate", Method: http.MethodPost, Path: "/v1/simulate", MaxBodyBytes: mostPolicy + mostPolicy/2,
		Summary: "The moves that a policy would make now",
		Description: "Evaluates the policy with the caches of the process and moves nothing. " +
			"At most two simulations and explanations run at once, and at most one per user.",
	}, answer(s, s.simulate))
}

type simulateInput struct {
	Body struct {
		Policy       string `json:"policy" maxLength:"1048576" doc:"a policy as YAML"`
		UntilSettled bool   `json:"untilSettled,omitempty" doc:"apply the policy again until nothing moves, at most rounds times"`
		Rounds       int    `json:"rounds,omitempty" minimum:"0" maximum:"100" doc:"10 by default"`
	}
}

type simulateOutput struct{ Body Simulation }

// Simulation has the moves that a policy would make.
type Simulation struct {
	simulate.Settlement
	// Warnings lists external strategies, which the simulation ignores.
	Warnings []string `json:"warnings"`
}

func (s *Server) simulate(ctx context.Context, in *simulateInput) (*simulateOutput, error) {
	u := callOf(ctx).user
	if err := s.maySeeAll(ctx, u); err != nil {
		return nil, err
	}
	p, err := policy.Parse("policy", []byte(in.Body.Policy), settings.Strategies())
	if err != nil {
		return nil, serve.Refuse(http.StatusUnprocessableEntity, "%w", err)
	}
	if err := confined(p, s.Policy()); err != nil {
		return nil, err
	}
	out := &simulateOutput{Simulation{Warnings: []string{}}}
	var notes strings.Builder
	p = settings.WithoutOutside(p, &notes)
	for line := range strings.Lines(notes.String()) {
		out.Body.Warnings = append(out.Body.Warnings, strings.TrimPrefix(strings.TrimSpace(line), "warning: "))
	}
	rounds := 1
	if in.Body.UntilSettled {
		rounds = cmp.Or(in.Body.Rounds, 10)
	}
	return out, s.work(ctx, func(ctx context.Context) error {
		round, objects, err := cached{s}.Round(ctx, p)
		if err != nil {
			return err
		}
		out.Body.Settlement, err = simulate.Settle(ctx, round, objects, rounds)
		return err
	})
}

// confined refuses a policy that makes this process use a server, a query, or a file that the policy in force does not name: the
// server would get a token of Rehome, the moves would tell the answer to any query, and the file can be any file.
func confined(p, inForce policy.Policy) error {
	if server := p.Metrics.Prometheus(); server != nil && !reflect.DeepEqual(server, inForce.Metrics.Prometheus()) {
		return serve.Refuse(http.StatusUnprocessableEntity,
			"metricsProviders: the Prometheus server %.200q is not the one of the policy in force; use its metricsProviders", server.URL)
	}
	if file := p.Scheduler.File(); file != "" && file != inForce.Scheduler.File() {
		return serve.Refuse(http.StatusUnprocessableEntity,
			"scheduler.profile: want LeastAllocated, MostAllocated, or the profile of the policy in force, got %.200q", file)
	}
	asked, err := loads(p)
	if err != nil {
		return err
	}
	known, err := loads(inForce)
	for _, l := range asked {
		if l.Query != "" && !slices.Contains(known, l) {
			return serve.Refuse(http.StatusUnprocessableEntity,
				"metricsUtilization.prometheus.query: want a query of the policy in force, got %.200q", l.Query)
		}
	}
	return err
}

// loads returns the loads that the strategies of a policy need.
func loads(p policy.Policy) ([]policy.Load, error) {
	compiled, err := scope.Compile(p)
	if err != nil {
		return nil, err
	}
	return compiled.Loads(), nil
}
