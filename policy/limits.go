package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultWindow is the [Limits.Window] of a file that says nothing. The peer counts anew in each of its cycles, which come
// every five minutes where it runs on as a Deployment.
const DefaultWindow = 5 * time.Minute

// longestWindow bounds how long a move has to be remembered.
const longestWindow = 24 * time.Hour

// Limits are how many pods may be moved within a window of time. The zero value limits nothing.
type Limits struct {
	// PerNode, PerNamespace and Total bound the pods moved off one node, out of one namespace, and at all. nil: no limit.
	// 0: none is moved.
	PerNode, PerNamespace, Total *uint
	// Window is how long a move counts. 0: [DefaultWindow].
	Window time.Duration
}

// Any says whether there is a limit at all.
func (l Limits) Any() bool { return l.PerNode != nil || l.PerNamespace != nil || l.Total != nil }

// Over is Window with its default filled in.
func (l Limits) Over() time.Duration {
	if l.Window == 0 {
		return DefaultWindow
	}
	return l.Window
}

// fileLimits is what only OwnVersion says about limits.
type fileLimits struct {
	Window *metav1.Duration `json:"window,omitzero"`
}

func (f fileLimits) validate() error {
	var found Findings
	if w := f.Window; w != nil && (w.Duration <= 0 || w.Duration > longestWindow) {
		found.Add("window", w, "must be greater than 0 and at most "+longestWindow.String(), "")
	}
	return found.Err()
}

// limits is what the file says about limits, all of it together.
func (f file) limits() Limits {
	l := Limits{
		PerNode: f.MaxNoOfPodsToEvictPerNode, PerNamespace: f.MaxNoOfPodsToEvictPerNamespace, Total: f.MaxNoOfPodsToEvictTotal,
	}
	if f.Limits.Window != nil {
		l.Window = f.Limits.Window.Duration
	}
	return l
}
