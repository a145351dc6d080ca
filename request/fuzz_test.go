package request

import (
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// FuzzRead checks that any request either is rejected with a reason and a message, or has a deadline and can be written and read
// unchanged.
func FuzzRead(f *testing.F) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, text := range []string{
		`{"sender":"ops","name":"one","action":"deschedule","reason":"now","target":{"node":"n1"},"deadline":"2026-03-04T06:00:00Z"}`,
		`{"sender":"ops","name":"one","action":"maintain","reason":"kernel","target":{"node":"n1"},"maintenance":{"stage":"Drain"}}`,
		`{"sender":"ops","name":"one","action":"deschedule","reason":"now","target":{"pods":[{"namespace":"a","name":"b"}]},"override":["DaemonSetPods"]}`,
		`{"sender":"ops","name":"one","action":"deschedule","reason":"now","target":{"selector":"a in (b","namespace":"\u0000"},"method":"?"}`,
		`{"sender":"ops","name":"one","unknown":1}`, `[[7]]`, `{} {}`,
	} {
		f.Add("rehome.request.ops.one", []byte(text))
	}
	f.Add("rehome.request", []byte(`{}`))
	f.Fuzz(func(t *testing.T, channel string, data []byte) {
		sender, name, _ := SenderOf(channel)
		e := schemas.Event{ID: "1", Type: schemas.RequestType, Channel: channel, Data: data}
		r, no := Read(e, sender, name, now, schemas.Receipt{})
		if no != nil {
			if no.Reason == "" || no.Message == "" {
				t.Errorf("rejected as %+v, want a reason and a message", no)
			}
			return
		}
		if d := Deadline(r, now); !d.After(now) || d.After(now.Add(requestLongest)) {
			t.Errorf("the deadline is %v", d)
		}
		e.Data = expect.ToJSON(t, r)
		if _, no := Read(e, sender, name, now, schemas.Receipt{}); no != nil {
			t.Errorf("%s was read, and is rejected after it was written as %s: %s", data, e.Data, no.Message)
		}
	})
}
