package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultRequestWait is the [Policy.EvictionRequests] of a file that asks for them and does not say how long to wait.
const DefaultRequestWait = 30 * time.Second

// longestRequestWait bounds how long a pod that nobody answers for can stay.
const longestRequestWait = time.Hour

// fileRequests is what a policy file says about EvictionRequests.
type fileRequests struct {
	Wait metav1.Duration `json:"wait"`
}

func (f *fileRequests) setDefaults() { f.Wait.Duration = DefaultRequestWait }

func (f fileRequests) validate() error {
	var found Findings
	found.above("wait", f.Wait, longestRequestWait)
	return found.Err()
}

// wait is how long an EvictionRequest may remain without an answer. 0: none is made.
func (f *fileRequests) wait() time.Duration {
	if f == nil {
		return 0
	}
	return f.Wait.Duration
}
