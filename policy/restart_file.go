package policy

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// fileRestart is what a policy file says about restarts.
type fileRestart struct {
	Workloads       RestartWorkloads `json:"workloads"`
	BlockedByBudget bool             `json:"blockedByBudget,omitzero"`
	Method          RestartMethod    `json:"method,omitzero"`
	Annotation      string           `json:"annotation,omitzero"`
	Otherwise       RestartOtherwise `json:"otherwise,omitzero"`
	Timeout         *metav1.Duration `json:"timeout,omitzero"`
	Cooldown        metav1.Duration  `json:"cooldown,omitzero"`
}

func (f *fileRestart) setDefaults() {
	f.Method, f.Annotation, f.Otherwise = RolloutRestart, DefaultRestartAnnotation, OtherwiseEvict
	f.Cooldown.Duration = DefaultRestartCooldown
}

func (f fileRestart) validate() error {
	var found Findings
	if w := f.Workloads; w != RestartAnnotated && w != RestartAll {
		found.Add("workloads", given(string(w)), missingOr(w == "", "is not known"),
			fmt.Sprintf("want %s or %s", RestartAnnotated, RestartAll))
	}
	if m := f.Method; m != RolloutRestart && m != Surge {
		found.Add("method", m, "is not known", fmt.Sprintf("want %s or %s", RolloutRestart, Surge))
	}
	if len(validation.IsQualifiedName(f.Annotation)) > 0 {
		found.Add("annotation", f.Annotation, "is not a key", "write NAME or PREFIX/NAME")
	}
	if o := f.Otherwise; o != OtherwiseEvict && o != OtherwiseSkip {
		found.Add("otherwise", o, "is not known", fmt.Sprintf("want %s or %s", OtherwiseEvict, OtherwiseSkip))
	}
	if f.Timeout != nil {
		found.above("timeout", *f.Timeout, longest)
	}
	found.from0("cooldown", f.Cooldown)
	return found.Err()
}

// restart is what the file says, with defaults filled in. Without the section it is off.
func (f *fileRestart) restart() Restart {
	if f == nil {
		return Restart{}
	}
	r := Restart{
		Workloads: f.Workloads, BlockedByBudget: f.BlockedByBudget, Method: f.Method, Annotation: f.Annotation,
		Otherwise: f.Otherwise, Cooldown: f.Cooldown.Duration,
	}
	if f.Timeout != nil {
		r.Timeout = f.Timeout.Duration
	}
	if r.Cooldown == 0 {
		r.Cooldown = DefaultRestartCooldown
	}
	return r
}

// written is what differs from the defaults, as it stands in a file. nil: restarts are off.
func (r Restart) written() *fileRestart {
	if r == (Restart{}) {
		return nil
	}
	f := fileRestart{Workloads: r.Workloads, BlockedByBudget: r.BlockedByBudget}
	if r.Method != RolloutRestart {
		f.Method = r.Method
	}
	if r.Annotation != DefaultRestartAnnotation {
		f.Annotation = r.Annotation
	}
	if r.Otherwise != OtherwiseEvict {
		f.Otherwise = r.Otherwise
	}
	if r.Timeout != 0 {
		f.Timeout = &metav1.Duration{Duration: r.Timeout}
	}
	if r.Cooldown != DefaultRestartCooldown {
		f.Cooldown.Duration = r.Cooldown
	}
	return &f
}
