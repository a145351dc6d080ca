package simulate_test

import (
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Each outcome has one row: moved pods with the reason of the move, others with the reason code and the message.
func TestOutcomeRowsAndCounts(t *testing.T) {
	got := ""
	for _, o := range schemas.Outcomes() {
		v := schemas.Verdict{
			Outcome: o, Reason: "Code", Message: "message", Strategy: "S",
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "api"}, Node: "n1", Reason: "reason"},
		}
		got += body(t, []schemas.Verdict{v})
	}
	want := `web api n1 S evicted reason; counts: 1 evicted, 0 deferred, 0 rejected
web api n1 S restarted reason; counts: 0 evicted, 1 restarted, 0 deferred, 0 rejected
web api n1 S requested reason; counts: 0 evicted, 1 requested, 0 deferred, 0 rejected
web api n1 S deferred Code: message; counts: 0 evicted, 1 deferred, 0 rejected
web api n1 S rejected Code: message; counts: 0 evicted, 0 deferred, 1 rejected
web api n1 S withdrawn Code: message; counts: 0 evicted, 0 deferred, 0 rejected, 1 withdrawn
web api n1 S expired Code: message; counts: 0 evicted, 0 deferred, 0 rejected, 1 expired
web api n1 S failed Code: message; counts: 0 evicted, 0 deferred, 0 rejected, 1 failed
web api n1 S settled Code: message; counts: 0 evicted, 0 deferred, 0 rejected, 1 settled
`
	expect.Equal(t, "result", got, want)
}

// body returns the table of the verdicts without its header, on one line with single spaces.
func body(t *testing.T, verdicts []schemas.Verdict) string {
	t.Helper()
	var out strings.Builder
	table := simulate.NewTable(&out, "counts", strings.Clone)
	expect.Must(t, table.Verdicts(verdicts))
	expect.Must(t, table.End())
	var lines []string
	for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")[1:] {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "; ") + "\n"
}
