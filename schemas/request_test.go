package schemas_test

import "testing"

func TestRequestLines(t *testing.T) {
	checkLines(t, "request", map[string]string{
		"request": "request admin/drain-worker-9: deschedule node worker-9: its fan is replaced at noon, by Robin of the platform team",
		"request-maintain": "request spot/i-0a1b2c3d4e5f67890: maintain node with provider ID i-0a1b2c3d4e5f67890: Drain within " +
			"2m0s: the cloud takes the machine back in two minutes",
	})
}
