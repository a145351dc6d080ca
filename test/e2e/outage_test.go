package e2e

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// unready queries /readyz for a while, and fails unless the process runs and is not ready all the time. It returns the last text.
func (p *process) unready(d time.Duration) string {
	p.t.Helper()
	said := ""
	for end := time.After(d); ; {
		status, body := p.ready()
		if status != http.StatusServiceUnavailable {
			p.t.Fatalf("/readyz: status %d, want %d all the time: %s", status, http.StatusServiceUnavailable, body)
		}
		said = body
		select {
		case <-p.Ended:
			p.t.Fatalf("rehome ended: %v", p.Err())
		case <-end:
			return said
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// notReady waits until the process reports that it is not ready.
func (p *process) notReady() {
	p.t.Helper()
	p.eventually("rehome is not ready", func() (bool, string) {
		status, body := p.ready()
		return status == http.StatusServiceUnavailable, body
	})
}

// complaints returns the lines of the log that are warnings or errors.
func (p *process) complaints() []string {
	var lines []string
	for line := range strings.Lines(p.Log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// complains fails unless the process has logged the text as a warning or an error, with at most that many such lines in total.
func (p *process) complains(words string, most int) {
	p.t.Helper()
	lines := p.complaints()
	all := strings.Join(lines, "")
	if !strings.Contains(all, words) {
		p.t.Errorf("no warning or error says %q; there are:\n%s", words, all)
	}
	if len(lines) > most {
		p.t.Errorf("%d warnings and errors, want at most %d:\n%s", len(lines), most, all)
	}
}

// handles taints the first node and waits until its only Deployment, with n pods, runs elsewhere.
func (s *scene) handles(n int) {
	s.t.Helper()
	before := s.pods(s.nodes[0])
	if len(before) != n {
		s.t.Fatalf("%d pods on %s, want %d", len(before), s.nodes[0], n)
	}
	from := len(s.evictions())
	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	s.ready("api")
	if got := s.evicted(from, n); !reflect.DeepEqual(uids(got), before) || len(got) != n {
		s.t.Errorf("evicted %v, want each once of %v", got, before)
	}
}

func TestStartWithoutBus(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 3, preferring(s.nodes[0]))
	servers := newNATS(t, 1)
	p := s.start([]string{"run", "--policy", s.policy()}, servers.variable())
	p.eventually("it serves", func() (bool, string) { status, body := p.ready(); return status != 0, body })
	if said := p.unready(6 * time.Second); !strings.Contains(said, "bus "+servers.url()+": not connected") {
		t.Errorf("/readyz says %q, want that there is no connection to the bus", said)
	}
	p.complains("not connected to the bus; retrying", 8)

	servers.start(0)
	p.waitReady()
	record(t, bus.Options{URL: servers.url()})
	s.handles(3)
}

func TestDrainSurvivesLostBus(t *testing.T) {
	for name, forget := range map[string]bool{"and came back with everything": false, "with all that was stored": true} {
		t.Run(name, func(t *testing.T) {
			servers := natsCluster(t, 1)
			d := newDrain(t)
			p := d.role("run", d.file, servers.variable())
			events := record(t, bus.Options{URL: servers.url()})

			d.begin(events)
			servers.kill(0)
			p.notReady()
			if forget {
				servers.forget(0)
			}
			servers.start(0)
			p.waitReady()
			d.complete()
			d.once(events)
			if !forget {
				d.closed(events)
				d.reported(events)
			}
			p.complains("not connected to the bus; retrying", 15)
		})
	}
}

func TestTerminatedProcess(t *testing.T) {
	d := newDrain(t)
	dir := filetest.ShortDir(t)
	first := d.rehome(d.file, dir)
	events := record(t, at(dir))

	d.begin(events)
	terminated := time.Now()
	if code := first.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	const grace = 30 * time.Second // the grace period in every manifest
	if took := time.Since(terminated); took > grace {
		t.Errorf("it took %v to end, want at most %v", took, grace)
	}
	done := uids(d.evictions())
	if len(done) == len(d.before) {
		t.Fatal("all pods were evicted before the end: it was not in the middle")
	}

	d.rehome(d.file, dir)
	d.complete()
	d.reported(events)
	d.once(events)
	t.Logf("%d pods were evicted before the end", len(done))
}
