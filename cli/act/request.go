// Package act has the commands that change something in a running Rehome.
//
//	move.go         move, evaluate, cancel
//	node.go         cordon, drain, uncordon
//	request.go      the flags of a request
//	wait.go         sends a request and follows the events that it causes
//	progress.go     the result of each pod
//	breakers.go     breakers clear
//	deadletters.go  deadletters retry, drop
package act

import (
	"crypto/rand"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Commands are the commands that change something.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		moveCommand(), drainCommand(), cordonCommand(), uncordonCommand(), evaluateCommand(), cancelCommand(),
		breakersCommand(), deadLettersCommand(),
	}
}

const longestRequest = 24 * time.Hour

// requestFlags are the flags of all requests.
type requestFlags struct {
	*cmdutil.Flags
	name, sender, reason, profile, method, output string
	deadline                                      time.Duration
	override                                      []string
	detach                                        bool
}

func bindRequest(c *cobra.Command) *requestFlags {
	f := &requestFlags{Flags: cmdutil.Settings(c).Reach()}
	flags := c.Flags()
	flags.StringVar(&f.reason, "reason", "", "reason for the request, shown with it everywhere")
	flags.StringVar(&f.sender, "sender", policy.AdminSender,
		"sender of the request, from the policy; requests to the API have the sender http")
	flags.StringVar(&f.name, "name", "", "name of the request: 1 to 63 of a-z, 0-9, and -; the default is random")
	flags.BoolVar(&f.detach, "detach", false, "send the request and return")
	cmdutil.Choice(c, &f.output, "output", "o", "json: one CloudEvent per line", "", "json")
	cmdutil.Must(c.MarkFlagRequired("reason"))
	return f
}

// send makes c send the request that fill completes from the arguments.
func (f *requestFlags) send(c *cobra.Command, fill func(r *schemas.Request, args []string) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := f.request(time.Now())
		if err == nil {
			err = fill(&r, args)
		}
		if err != nil {
			return err
		}
		if r.Action == schemas.ActionDeschedule {
			r.DryRun = f.Settings.DryRun
		} else if err := f.RefuseDryRun(); err != nil {
			return err
		}
		return f.sendRequest(c, r)
	}
	return c
}

// request returns the request of the flags.
func (f *requestFlags) request(now time.Time) (schemas.Request, error) {
	r := schemas.Request{
		Sender: f.sender, Name: f.name, Reason: f.reason, Profile: f.profile, Override: f.override, Requester: requester(),
	}
	if r.Name == "" {
		r.Name = "cli-" + strings.ToLower(rand.Text()[:12])
	}
	if f.deadline != 0 {
		r.Deadline = now.Add(f.deadline).UTC()
	}
	if f.method != string(schemas.UseAuto) {
		r.Method = schemas.RequestMethod(f.method)
	}
	switch n := len([]rune(f.reason)); {
	case n == 0 || n > schemas.MaxRequestReason:
		return r, fmt.Errorf("--reason: want 1 to %d characters, got %d", schemas.MaxRequestReason, n)
	case !schemas.IsRequestWord(r.Sender):
		return r, fmt.Errorf("--sender: want 1 to 63 of a-z, 0-9 and -, got %q", r.Sender)
	case !schemas.IsRequestWord(r.Name):
		return r, fmt.Errorf("--name: want 1 to 63 of a-z, 0-9 and -, got %q", r.Name)
	case f.deadline < 0 || f.deadline > longestRequest:
		return r, fmt.Errorf("--deadline: want at most %v, such as 30m, got %v", longestRequest, f.deadline)
	}
	return r, nil
}

// requester returns the name of the user on this machine, for display only.
func requester() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}
