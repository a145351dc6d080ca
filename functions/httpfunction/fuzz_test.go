package httpfunction_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rehome-dev/rehome/functions/httpfunction"
)

// FuzzRequest checks that any request is either answered with a valid event or rejected as an error of the client, without a
// panic.
func FuzzRequest(f *testing.F) {
	h := httpfunction.New(httpfunction.Config{Function: nodeTaints(), Source: "/clusters/test/functions", MaxBytes: most})
	s := scope(f, 1)
	for _, mode := range []string{"binary", "structured", "batched"} {
		r := in(f, mode, s)
		f.Add(r.header.Get("Content-Type"), "", r.header.Get("Ce-Specversion"), s.ID, "2026-03-04T05:06:07Z", r.body)
		f.Add(r.header.Get("Content-Type"), "gzip", r.header.Get("Ce-Specversion"), s.ID, "", zipped(f, r.body))
	}
	f.Add("application/cloudevents-batch+json; charset=utf-8", "", "", "", "", []byte(`[{},null,7]`))
	f.Add("", "identity", "1.0", "%FF%", "soon", []byte(`{"kind":"node","strategy":"RemovePodsViolatingNodeTaints"}`))
	f.Fuzz(func(t *testing.T, content, encoding, version, id, expires string, body []byte) {
		q := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		for name, value := range map[string]string{
			"Content-Type": content, "Content-Encoding": encoding, "Ce-Specversion": version, "Ce-Id": id, "Ce-Source": id,
			"Ce-Type": s.Type, "Ce-Subject": id, "Ce-Time": expires, "Ce-Expirytime": expires, "Ce-Correlationid": id,
		} {
			if value != "" {
				q.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		got := reply{w.Code, w.Header(), w.Body.String()}
		switch media := got.header.Get("Content-Type"); {
		case got.status >= 400 && got.status < 500:
			if got.body == "" || bytes.IndexByte([]byte(got.body), '\n') != len(got.body)-1 {
				t.Errorf("status %d with %q, want one line", got.status, got.body)
			}
		case media == "application/cloudevents-batch+json":
			got.events(t, "batched")
		case media == "application/cloudevents+json":
			got.events(t, "structured")
		default:
			got.events(t, "binary")
		}
	})
}
