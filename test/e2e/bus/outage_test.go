package bus

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// checkUnready queries /readyz for a while, and fails unless the process runs and is not ready all the time. It returns the last text.
func checkUnready(p *scene.Process, d time.Duration) string {
	p.T.Helper()
	said := ""
	for end := time.After(d); ; {
		status, body := p.Readiness()
		if status != http.StatusServiceUnavailable {
			p.T.Fatalf("/readyz: status %d, want %d all the time: %s", status, http.StatusServiceUnavailable, body)
		}
		said = body
		select {
		case <-p.Ended:
			p.T.Fatalf("rehome ended: %v", p.Err())
		case <-end:
			return said
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// warnings returns the lines of the log that are warnings or errors.
func warnings(p *scene.Process) []string {
	var lines []string
	for line := range strings.Lines(p.Log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// checkWarnings fails unless the process has logged the text as a warning or an error, with at most that many such lines in total.
func checkWarnings(p *scene.Process, words string, most int) {
	p.T.Helper()
	lines := warnings(p)
	all := strings.Join(lines, "")
	if !strings.Contains(all, words) {
		p.T.Errorf("no warning or error says %q; there are:\n%s", words, all)
	}
	if len(lines) > most {
		p.T.Errorf("%d warnings and errors, want at most %d:\n%s", len(lines), most, all)
	}
}

func TestStartWithoutBus(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 3, scene.PreferNode(s.Nodes[0]))
	servers := scene.NewNATS(t, 1)
	p := s.Start([]string{"run", "--policy", s.Policy()}, servers.Setting())
	p.Eventually("it serves", func() (bool, string) { status, body := p.Readiness(); return status != 0, body })
	if said := checkUnready(p, 6*time.Second); !strings.Contains(said, "bus "+servers.URL()+": not connected") {
		t.Errorf("/readyz says %q, want that there is no connection to the bus", said)
	}
	checkWarnings(p, "not connected to the bus; retrying", 8)

	servers.Start(0)
	p.WaitReady()
	scene.Record(t, bus.Options{URL: servers.URL()})
	s.DrainFirstNode(3)
}

func TestDrainSurvivesLostBus(t *testing.T) {
	for name, forget := range map[string]bool{"and came back with everything": false, "with all that was stored": true} {
		t.Run(name, func(t *testing.T) {
			servers := scene.StartNATS(t, 1)
			d := newDrain(t)
			p := d.StartRole("run", d.file, servers.Setting())
			events := scene.Record(t, bus.Options{URL: servers.URL()})

			d.begin(events)
			servers.Kill(0)
			p.WaitNotReady()
			if forget {
				deleteStore(servers, 0)
			}
			servers.Start(0)
			p.WaitReady()
			d.complete()
			d.checkOnce(events)
			if !forget {
				d.checkAnswers(events)
				d.checkReported(events)
			}
			checkWarnings(p, "not connected to the bus; retrying", 15)
		})
	}
}

func TestTerminatedProcess(t *testing.T) {
	d := newDrain(t)
	dir := filetest.ShortDir(t)
	first := d.StartRun(d.file, dir)
	events := scene.Record(t, scene.BusIn(dir))

	d.begin(events)
	terminated := time.Now()
	if code := first.Stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	const grace = 30 * time.Second // the grace period in every manifest
	if took := time.Since(terminated); took > grace {
		t.Errorf("it took %v to end, want at most %v", took, grace)
	}
	done := scene.UIDs(d.Evictions())
	if len(done) == len(d.before) {
		t.Fatal("all pods were evicted before the end: it was not in the middle")
	}

	d.StartRun(d.file, dir)
	d.complete()
	d.checkReported(events)
	d.checkOnce(events)
	t.Logf("%d pods were evicted before the end", len(done))
}
