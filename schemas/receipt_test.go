package schemas_test

import "testing"

func TestReceiptLines(t *testing.T) {
	checkLines(t, "receipt", map[string]string{
		"receipt":          "receipt admin/drain-worker-9: accepted: Accepted: 1 of 2 pods is to move, 1 is protected",
		"receipt-finished": "receipt admin/drain-worker-9: finished: Done: 1 of 2 pods is gone",
	})
}
