package policy

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fileLimits is what only OwnVersion says about limits.
type fileLimits struct {
	Window      *metav1.Duration    `json:"window,omitzero"`
	InFlight    InFlight            `json:"inFlight,omitzero"`
	Unavailable *intstr.IntOrString `json:"unavailable,omitzero"`
	Pause       metav1.Duration     `json:"pause,omitzero"`
}

func (f fileLimits) validate() error {
	var found Findings
	if f.Window != nil {
		found.above("window", *f.Window, longest)
	}
	if f.Unavailable != nil {
		found.Join("unavailable", validateUnavailable(*f.Unavailable))
	}
	found.from0("pause", f.Pause)
	return found.Err()
}

func validateUnavailable(u intstr.IntOrString) error {
	var found Findings
	share, isShare := percentage(u.StrVal)
	_, notNumber := strconv.Atoi(u.StrVal)
	switch {
	case u.Type == intstr.Int && u.IntVal < 0:
		found.Add("", u.IntVal, "must not be negative", "")
	case u.Type == intstr.Int:
	case isShare:
		found.share("", percent(share))
	case notNumber == nil:
		found.Add("", u.StrVal, "is text and no percentage", "write it without quotes: "+u.StrVal)
	default:
		found.Add("", u.StrVal, "is neither a whole number nor a percentage", `write how many pods, or a share such as "25%"`)
	}
	return found.Err()
}

// limits is what the file says about limits, all of it together.
func (f file) limits() Limits {
	l := Limits{
		PerNode: f.MaxNoOfPodsToEvictPerNode, PerNamespace: f.MaxNoOfPodsToEvictPerNamespace, Total: f.MaxNoOfPodsToEvictTotal,
		InFlight: f.Limits.InFlight, Unavailable: f.Limits.Unavailable, Pause: f.Limits.Pause.Duration,
	}
	if f.Limits.Window != nil {
		l.Window = f.Limits.Window.Duration
	}
	if l.Unavailable != nil && l.Unavailable.Type == intstr.String {
		share, _ := percentage(l.Unavailable.StrVal)
		l.Unavailable = new(intstr.FromString(percent(share).String())) // 025% is 25%, and 00% is 0%
	}
	return l
}

// written is the part of the limits that only OwnVersion has, as it stands in a file. nil: there is none.
func (l Limits) written() *fileLimits {
	f := fileLimits{InFlight: l.InFlight, Unavailable: l.Unavailable, Pause: metav1.Duration{Duration: l.Pause}}
	if l.Window != 0 {
		f.Window = &metav1.Duration{Duration: l.Window}
	}
	if f == (fileLimits{}) {
		return nil
	}
	return &f
}
