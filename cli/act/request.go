// Package act holds the command that makes requests.
//
//	request.go   request and its subcommands
//	node.go      request node: cordon, drain, and complete
//	wait.go      sends a request and follows the events that it causes; progress.go keeps what became of each pod
package act

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func RequestCommand() *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "request",
		Short: "Request that pods are moved, a node is drained, or strategies are evaluated, and follow the request",
		Long: "Request that pods are moved, that a node is drained or given back, or that strategies are evaluated. Pods are moved\n" +
			"by the rules of the policy: protections, budgets, limits and circuit breakers apply. A deferred pod is tried again\n" +
			"until the deadline.\n\n" +
			"With --wait, the default, each verdict is a line, and at the end there is a table of all pods. Ctrl-C leaves the\n" +
			"request open. The exit code is 0 if all pods were moved and their replacements are ready, 1 if some remain, were not\n" +
			"replaced, or the request was rejected. With -o json each event is a line, and there is no table.",
		Example: "  rehome request pod shop/api-1 --reason 'it hangs'\n" +
			"  rehome request node worker-9 --drain --reason 'its fan is replaced' --deadline 4h\n" +
			"  rehome request cancel drain-worker-9 --reason 'the fan is still good'",
	}, requestPodCommand(), requestWorkloadCommand(), requestPodsCommand(), requestNodeCommand(), requestEvaluateCommand(),
		requestCancelCommand())
}

const longestRequest = 24 * time.Hour

// RequestFlags are those that all requests have, and those about pods that only some have.
type RequestFlags struct {
	name, Sender, Reason, profile, Method, Output string
	Deadline                                      time.Duration
	override                                      []string
	wait                                          bool
}

// requestThe lets c send the request that fill completes from the arguments.
func requestThe(c *cobra.Command, pods bool, fill func(r *schemas.Request, arguments []string) error) *cobra.Command {
	f := RequestFlags{}
	s := command.BindClientFlags(c)
	flags := c.Flags()
	flags.StringVar(&f.Reason, "reason", "", "why, in words; it is shown wherever the request is")
	flags.StringVar(&f.Sender, "sender", policy.AdminSender, "as whom to ask: one that the policy lets ask")
	flags.StringVar(&f.name, "name", "", "name of the request: 1 to 63 of a-z, 0-9 and -; the default is made up")
	flags.BoolVar(&f.wait, "wait", true, "show what becomes of it until it is over; with --wait=false it is only sent")
	flags.StringVarP(&f.Output, "output", "o", "text", "text or json: one CloudEvent a line")
	flags.StringVar(&f.profile, "profile", "", "profile of the policy; the default is its first, or all of them for evaluate")
	if pods {
		flags.StringVar(&f.Method, "method", string(schemas.UseAuto), "auto: as the policy says; evict; or restart")
		flags.DurationVar(&f.Deadline, "deadline", 0, "how long to try; the default is 1h, the most 24h")
		flags.StringSliceVar(&f.override, "override", nil, "rule of protection that is not to hold; may be given again")
	}
	c.RunE = func(c *cobra.Command, arguments []string) error {
		r, err := f.Request(time.Now())
		if err == nil {
			err = fill(&r, arguments)
		}
		if err != nil {
			return err
		}
		return command.WithSettings(c, s, func(s settings.Settings) error {
			if s.DryRun && r.Action != schemas.ActionDeschedule {
				return fmt.Errorf("%s: want it without --dry-run and REHOME_DRY_RUN, which are for pods", c.CommandPath())
			}
			r.DryRun = s.DryRun
			return sendRequest(c, s, r, f.wait, f.Output == "json")
		})
	}
	return c
}

// Request is what the flags say.
func (f RequestFlags) Request(now time.Time) (schemas.Request, error) {
	r := schemas.Request{
		Sender: f.Sender, Name: f.name, Reason: f.Reason, Profile: f.profile, Override: f.override, Requester: Requester(),
		Action: schemas.ActionDeschedule,
	}
	if r.Name == "" {
		r.Name = "cli-" + strings.ToLower(rand.Text()[:12])
	}
	if f.Deadline != 0 {
		r.Deadline = now.Add(f.Deadline).UTC()
	}
	if f.Method != string(schemas.UseAuto) {
		r.Method = schemas.RequestMethod(f.Method)
	}
	switch {
	case f.Reason == "":
		return r, errors.New("--reason: want words that say why, got none")
	case len([]rune(f.Reason)) > schemas.MaxRequestReason:
		return r, fmt.Errorf("--reason: want at most %d characters, got %d", schemas.MaxRequestReason, len([]rune(f.Reason)))
	case !schemas.IsRequestWord(r.Sender):
		return r, fmt.Errorf("--sender: want 1 to 63 of a-z, 0-9 and -, got %q", r.Sender)
	case !schemas.IsRequestWord(r.Name):
		return r, fmt.Errorf("--name: want 1 to 63 of a-z, 0-9 and -, got %q", r.Name)
	case r.Method != "" && !slices.Contains(schemas.RequestMethods(), r.Method):
		return r, fmt.Errorf("--method: want auto, evict or restart, got %q", r.Method)
	case f.Deadline < 0 || f.Deadline > longestRequest:
		return r, fmt.Errorf("--deadline: want at most %v, such as 30m, got %v", longestRequest, f.Deadline)
	case f.Output != "text" && f.Output != "json":
		return r, fmt.Errorf("--output: want text or json, got %q", f.Output)
	}
	return r, nil
}

// Requester is who asks, as far as this machine knows: for people, nothing rests on it.
func Requester() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func requestPodCommand() *cobra.Command {
	return requestThe(&cobra.Command{
		Use:   "pod NAMESPACE/NAME...",
		Short: "Request that these pods are moved",
		Example: "  rehome request pod shop/api-1 shop/api-2 --reason 'they hang'\n" +
			"  rehome request pod shop/db-0 --method restart --override PodsWithLocalStorage --reason 'slow disk'",
	}, true, func(r *schemas.Request, arguments []string) error {
		if len(arguments) == 0 {
			return errors.New("want pods such as shop/api-1, got none")
		}
		r.Target = &schemas.Target{}
		for _, text := range arguments {
			pod, err := command.PodNamed(text)
			if err != nil {
				return err
			}
			r.Target.Pods = append(r.Target.Pods, schemas.PodTarget{Namespace: pod.Namespace, Name: pod.Name})
		}
		return nil
	})
}

func requestWorkloadCommand() *cobra.Command {
	return requestThe(&cobra.Command{
		Use:     "workload KIND/NAMESPACE/NAME",
		Short:   "Request that all pods of a Deployment, StatefulSet or another workload are moved",
		Example: "  rehome request workload deployment/shop/api --reason 'new node pool'",
	}, true, func(r *schemas.Request, arguments []string) error {
		if len(arguments) != 1 {
			return fmt.Errorf("want one workload such as deployment/shop/api, got %q", arguments)
		}
		parts, err := command.Parts(arguments[0], 3, "a workload such as deployment/shop/api")
		if err != nil {
			return err
		}
		r.Target = &schemas.Target{Workload: &schemas.WorkloadTarget{Kind: kindNamed(parts[0]), Namespace: parts[1], Name: parts[2]}}
		return nil
	})
}

// kindNamed writes a kind as Kubernetes does.
func kindNamed(text string) string {
	for _, kind := range []string{
		"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController",
	} {
		if strings.EqualFold(kind, text) || strings.EqualFold(kind+"s", text) {
			return kind
		}
	}
	return text
}

func requestPodsCommand() *cobra.Command {
	var namespace, selector string
	everywhere := false
	c := &cobra.Command{
		Use:   "pods -l SELECTOR (-n NAMESPACE | -A)",
		Short: "Request that all pods with these labels are moved",
		Example: "  rehome request pods -n shop -l app=api,tier!=test --reason 'new node pool'\n" +
			"  rehome request pods -A -l runtime=old --dry-run --reason 'what would move?'",
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "where they are")
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "in all namespaces that the sender may")
	c.Flags().StringVarP(&selector, "selector", "l", "", "labels, such as app=api,tier!=test")
	return requestThe(c, true, func(r *schemas.Request, arguments []string) error {
		parsed, err := labels.Parse(selector)
		switch {
		case len(arguments) > 0:
			return fmt.Errorf("%s takes no arguments, got %q", c.CommandPath(), arguments)
		case err != nil:
			return fmt.Errorf("--selector: want labels such as app=api,tier!=test, got %q: %w", selector, err)
		case parsed.Empty():
			return errors.New("--selector: want labels such as app=api,tier!=test, got none")
		case everywhere == (namespace != ""):
			return errors.New("want either --namespace or --all-namespaces")
		}
		r.Target = &schemas.Target{Selector: &schemas.SelectorTarget{Namespace: namespace, Labels: selector}}
		return nil
	})
}

func requestEvaluateCommand() *cobra.Command {
	return requestThe(&cobra.Command{
		Use:     "evaluate [STRATEGY]",
		Short:   "Request that a strategy, or all of them, evaluate everything now",
		Example: "  rehome request evaluate PodLifeTime --reason 'the clock was wrong'",
	}, false, func(r *schemas.Request, arguments []string) error {
		if len(arguments) > 1 {
			return fmt.Errorf("want one strategy or none, got %q", arguments)
		}
		r.Action, r.Strategy = schemas.ActionEvaluate, strings.Join(arguments, "")
		return nil
	})
}

func requestCancelCommand() *cobra.Command {
	return requestThe(&cobra.Command{
		Use:     "cancel NAME",
		Short:   "Cancel an open request of the same sender; moves that have begun continue",
		Example: "  rehome request cancel drain-worker-9 --reason 'the fan is still good'",
	}, false, func(r *schemas.Request, arguments []string) error {
		if len(arguments) != 1 || !schemas.IsRequestWord(arguments[0]) {
			return fmt.Errorf("want the name of one request, got %q", arguments)
		}
		r.Action, r.Request = schemas.ActionCancel, arguments[0]
		return nil
	})
}
