package policy

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fileBrakes is what a policy file says about brakes. What it does not say is as [DefaultBrakes] have it.
type fileBrakes struct {
	Loop  *fileLoop  `json:"loop,omitzero"`
	Storm *fileStorm `json:"storm,omitzero"`
}

type fileLoop struct {
	Delay    metav1.Duration `json:"delay"`
	MaxDelay metav1.Duration `json:"maxDelay"`
}

type fileStorm struct {
	Nodes      percent         `json:"nodes"`
	Pending    uint32          `json:"pending"`
	PendingFor metav1.Duration `json:"pendingFor"`
	Failures   percent         `json:"failures"`
}

func (f *fileLoop) setDefaults() { *f = DefaultBrakes().Loop.written() }

func (f *fileStorm) setDefaults() { *f = DefaultBrakes().Storm.written() }

func (f fileBrakes) validate() error {
	var found Findings
	if f.Loop != nil {
		found.Join("loop", f.Loop.validate())
	}
	if f.Storm != nil {
		found.Join("storm", f.Storm.validate())
	}
	return found.Err()
}

func (f fileLoop) validate() error {
	var found Findings
	found.from0("delay", f.Delay)
	found.from0("maxDelay", f.MaxDelay)
	if len(found) == 0 && f.MaxDelay.Duration < f.Delay.Duration {
		found.Add("maxDelay", f.MaxDelay, fmt.Sprintf("must be at least delay, %v", f.Delay.Duration),
			fmt.Sprintf("it is %v when it is not given", DefaultBrakes().Loop.MaxDelay))
	}
	return found.Err()
}

func (f fileStorm) validate() error {
	var found Findings
	found.share("nodes", f.Nodes)
	if f.Pending == 0 {
		found.from0("pendingFor", f.PendingFor)
	} else if f.PendingFor.Duration <= 0 || f.PendingFor.Duration > longest {
		found.Add("pendingFor", f.PendingFor, "must be greater than 0 and at most "+longest.String(),
			"pending: 0 switches the condition off")
	}
	found.share("failures", f.Failures)
	return found.Err()
}

// brakes is what the file says, over the defaults.
func (f fileBrakes) brakes() Brakes {
	b := DefaultBrakes()
	if l := f.Loop; l != nil {
		b.Loop = Loop{Delay: l.Delay.Duration, MaxDelay: l.MaxDelay.Duration}
	}
	if s := f.Storm; s != nil {
		b.Storm = Storm{
			Nodes: int(s.Nodes), Pending: int(s.Pending), PendingFor: s.PendingFor.Duration, Failures: int(s.Failures),
		}
	}
	return b
}

// written is what differs from the defaults, as it stands in a file. nil: nothing.
func (b Brakes) written() *fileBrakes {
	var f fileBrakes
	if b.Loop != DefaultBrakes().Loop {
		f.Loop = new(b.Loop.written())
	}
	if b.Storm != DefaultBrakes().Storm {
		f.Storm = new(b.Storm.written())
	}
	if f == (fileBrakes{}) {
		return nil
	}
	return &f
}

func (l Loop) written() fileLoop {
	return fileLoop{Delay: metav1.Duration{Duration: l.Delay}, MaxDelay: metav1.Duration{Duration: l.MaxDelay}}
}

func (s Storm) written() fileStorm {
	return fileStorm{
		Nodes: percent(s.Nodes), Pending: uint32(s.Pending), PendingFor: metav1.Duration{Duration: s.PendingFor},
		Failures: percent(s.Failures),
	}
}
