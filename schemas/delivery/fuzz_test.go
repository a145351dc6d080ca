package delivery_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas/delivery"
)

// FuzzReadAfter checks that any Retry-After header is a delay within the limit, which is the same after it was written as seconds.
func FuzzReadAfter(f *testing.F) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, text := range []string{"", "7", " 300 ", "-1", "+5", "1e3", "0x10", "4294967296", "9223372036854775807", "Wed, 04 Mar 2026 05:07:07 GMT",
		"Wed, 04 Mar 0000 05:07:07 GMT", "Wednesday, 04-Mar-26 05:07:07 GMT", "Wed Mar  4 05:07:07 9999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		after := delivery.ReadAfter(text, now)
		if after < 0 || after > delivery.MaxAfter {
			t.Errorf("%q is %s", text, after)
		}
		if date := now.Add(after).Format(http.TimeFormat); delivery.ReadAfter(date, now) != after {
			t.Errorf("%q is %s, and %q is not", text, after, date)
		}
	})
}
