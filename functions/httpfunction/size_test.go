package httpfunction_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/functions/httpfunction"
)

// TestHostileSize sends few KiB that would need gigabytes of memory.
func TestHostileSize(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints()})
	s := scope(t, 1)
	s.ID = "e1"
	list := "[" + strings.Repeat("{},", 2_700_000) + "{}]"
	batched := http.Header{"Content-Type": {"application/cloudevents-batch+json"}}
	for name, c := range map[string]struct {
		request
		want string
	}{
		"a scope": {
			in(t, "binary", s).saying([]byte(`{"pods":` + list + `}`)),
			"event e1 of type dev.rehome.scope.v1: invalid event: its lists need more than 133794512",
		},
		"a batch": {
			request{header: batched}.saying([]byte(list)),
			"event 0 of the batch: read CloudEvent: invalid event: body is not a CloudEvent: specversion: no specversion",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.with("Content-Encoding", "gzip").saying(zipped(t, c.body))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := ask(t, address, r).refusal()
			runtime.ReadMemStats(&after)
			got.says, _, _ = strings.Cut(got.says, " bytes of memory")
			if want := (refusal{400, c.want, ""}); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if used, most := (after.TotalAlloc-before.TotalAlloc)>>20, uint64(600); used > most {
				t.Errorf("%d bytes allocate %d MiB, want at most %d", len(r.body), used, most)
			}
		})
	}
}
