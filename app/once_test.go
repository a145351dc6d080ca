package app

import (
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestOnceFailures(t *testing.T) {
	for name, c := range map[string]struct {
		outcome schemas.Outcome
		reason  schemas.ReasonCode
		want    bool
	}{
		"evicted":                  {schemas.Evicted, schemas.ReasonEvictionAccepted, false},
		"a_protected_pod":          {schemas.Rejected, schemas.ReasonProtected, false},
		"a_budget":                 {schemas.Deferred, schemas.ReasonDisruptionBudget, false},
		"a_missing_right":          {schemas.Failed, schemas.ReasonForbidden, true},
		"an_unavailable_server":    {schemas.Deferred, schemas.ReasonAPIUnavailable, true},
		"an_internal_error":        {schemas.Deferred, schemas.ReasonInternalError, true},
		"a_turn_that_did_not_come": {schemas.Expired, schemas.ReasonExpired, true},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "failure", isFailure(schemas.Verdict{Outcome: c.outcome, Reason: c.reason}), c.want)
		})
	}
}
