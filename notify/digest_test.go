package notify

import (
	"fmt"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// TestDigestWithoutPosts adds more groups than the digest keeps, as while the service takes no messages.
func TestDigestWithoutPosts(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	d := NewDigest(10*time.Second, 5*time.Minute)
	for i := range mostGroups + 10 {
		at := start.Add(time.Duration(i) * time.Millisecond)
		r := schemas.Receipt{Sender: "ops", Name: fmt.Sprint(i), State: schemas.RequestFinished, Reason: schemas.ReceiptDone}
		d.Add(schematest.Event(t, "/clusters/prod/watcher", r, at, schemas.Event{}), at)
	}
	atOnce := len(d.Due(start.Add(3*time.Second), false))
	rest := d.Due(start.Add(time.Hour), true)
	got := []any{d.LeftOut(), atOnce, len(rest), rest[0].Began.Sub(start), d.LeftOut()}
	want := []any{10, dueGroups, mostGroups - dueGroups, time.Duration(dueGroups+10) * time.Millisecond, 0}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
