package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
)

// TestFullDiskReport fills the disk of the embedded bus. Readiness and the metric must report the reason, and when
// there is space again, everything must be evaluated.
func TestFullDiskReport(t *testing.T) {
	bustest.SmallDisk(t, "32m", func(t *testing.T, disk bustest.Disk) {
		server := bustest.Server(t, embed.Options{StoreDir: filepath.Join(disk.Dir, "store"), Reserve: 8 << 20})
		resynced := make(chan struct{}, 1)
		p := &process{server: server, resync: func() { resynced <- struct{}{} }}
		later := time.Duration(0)
		status := &serving.Status{
			Metrics: prometheus.NewRegistry(), Checks: []serving.Check{func(context.Context) error { return server.Ready() }},
			Alive: func() error { return server.Alive(time.Now().Add(later)) },
		}
		get := func(path string) (int, string) {
			w := httptest.NewRecorder()
			status.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.Code, w.Body.String()
		}
		reasons := func(full, stopped string) {
			t.Helper()
			want := "# TYPE rehome_bus_refusing_writes gauge\n" +
				"rehome_bus_refusing_writes{reason=\"full\"} " + full + "\nrehome_bus_refusing_writes{reason=\"stopped\"} " + stopped + "\n"
			metricstest.Compare(t, metricstest.Of(newStoreMetrics(server)), want, "rehome_bus_refusing_writes")
		}
		reasons("0", "0")
		free := disk.Fill(t, 4<<20)
		expect.Eventually(t, "the server refuses writes", func() bool { return server.Ready() != nil })
		reasons("1", "0")
		if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.HasPrefix(body, embed.ErrNoSpace.Error()) {
			t.Errorf("/readyz: got %d %s, want 503 with the reason", code, body)
		}
		later = time.Hour
		if code, body := get("/healthz"); code != http.StatusOK {
			t.Errorf("/healthz: got %d %s, want 200: a restart gives no space", code, body)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.evaluateAgain(ctx) }()
		free()
		<-resynced
		reasons("0", "0")
		if code, _ := get("/readyz"); code != http.StatusOK {
			t.Errorf("/readyz: got %d, want 200", code)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
