package policy_test

import (
	"os"
	"testing"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
)

// TestMain gives the tests of package policy the strategies of the program, whose packages import policy.
func TestMain(m *testing.M) {
	*policy.Ten = settings.Strategies
	os.Exit(m.Run())
}
