package post

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// FuzzAnswer checks any response: only a status of success is a success, the error is one line of limited length, and the event
// is missing, invalid, or can be written and read unchanged.
func FuzzAnswer(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add(200, cloudevent.StructuredJSON, "", "", e.Document)
		f.Add(200, cloudevent.JSON, "1.0", "7", []byte(e.Event.Data))
	}
	f.Add(503, "text/html", "", "Sun, 22 Nov 2026 10:00:00 GMT", []byte("<h1>\r\n\x00\xff busy"))
	f.Add(-1, cloudevent.BatchJSON, "", "-7", []byte("[]"))
	f.Add(429, "application/cloudevents+json; charset=\"", "1.0", "99999999999999999999", []byte("{"))
	f.Fuzz(func(t *testing.T, status int, content, version, after string, body []byte) {
		a := answer{status: status, body: body, header: http.Header{
			"Content-Type": {content}, "Ce-Specversion": {version}, "Ce-Id": {"1"}, "Ce-Source": {"/f"}, "Ce-Type": {"t"},
			"Ce-Subject": {after}, "Retry-After": {after},
		}}
		err := verdict(a, nil, now)
		if m := meaningOf(err); (err == nil) != (status >= 200 && status < 300) || m.after < 0 ||
			err != nil && m == (meaning{}) {
			t.Errorf("status %d means %+v: %v", status, m, err)
		}
		if said := a.say(); strings.ContainsAny(said, "\r\n") || len(said) > mostText+100 || !utf8.ValidString(said) {
			t.Errorf("it says %q", said)
		}
		e, has, err := a.event()
		if err != nil || !has {
			if err != nil && !errors.Is(err, schemas.ErrInvalid) || !reflect.DeepEqual(e, schemas.Event{}) || has {
				t.Errorf("got %+v, %v, %v", e, has, err)
			}
			return
		}
		again := answer{header: http.Header{"Content-Type": {cloudevent.JSON}}, body: e.Data}
		set := func(name, value string) { again.header.Set(cloudevent.HeaderPrefix+name, value) }
		if err := cloudevent.WriteAttributes(e, set); err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", e, err)
		}
		again.header.Del("Ce-Datacontenttype")
		if got, has, err := again.event(); err != nil || !has || !reflect.DeepEqual(got, e) {
			t.Errorf("read %+v, and then %+v, %v, %v", e, got, has, err)
		}
	})
}
