package bus

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

const (
	// fullFor is how long the disk stays full.
	fullFor = 30 * time.Second
	// resumeLimit is the longest time until moves resume when there is space again.
	resumeLimit = 2 * time.Minute
)

// TestFullBusDisk taints a node while the disk of the embedded bus is full, in a mount namespace of the process. The pods
// move without intervention when there is space again. The process may use 4 GiB of address space.
func TestFullBusDisk(t *testing.T) {
	for name, c := range map[string]struct{ size, reserve, says string }{
		"a reserve":          {"128m", "67108864", "the bus accepts no events: its disk is full"},
		"hardly_any_reserve": {"24m", "1048576", "no space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene.New(t, 3)
			s.AddDeployment("api", 8, scene.PreferNode(s.Nodes[0]))
			disk := filetest.ShortDir(t)
			running, err := program.Start("unshare", []string{"--user", "--map-root-user", "--mount", "sh", "-c",
				`ulimit -v 4194304 && mount -t tmpfs -o size=` + c.size + ` none "$REHOME_STORE_DIR" && exec "$0" "$@"`,
				s.Binary, "run", "--policy", s.Policy()},
				append(s.Environment(), "REHOME_STORE_DIR="+disk, "REHOME_STORE_RESERVE="+c.reserve))
			s.T.Must(err)
			p := &scene.Process{Program: running, T: t}
			t.Cleanup(func() {
				p.Kill()
				if t.Failed() || os.Getenv("SHOW") != "" {
					t.Logf("rehome said:\n%s", p.Log)
				}
			})
			p.WaitReady()
			p.WaitEvaluated(s)
			before, from := s.PodsOn(s.Nodes[0]), len(s.Evictions())
			normal, err := program.MemoryOf(p.Pid())
			s.T.Must(err)
			free := fillDisk(s, p, filepath.Join("/proc", fmt.Sprint(p.Pid()), "root", disk, "filler"), c.says)
			s.Taint(s.Nodes[0], "dedicated")
			if said := checkUnready(p, fullFor); !strings.Contains(said, c.says) {
				t.Errorf("/readyz says %q, want %q", said, c.says)
			}
			if got := len(s.Evictions()) - from; got > 0 {
				t.Errorf("%d pods were evicted without a record in the ledger", got)
			}
			free()
			freed := time.Now()
			s.WaitEmpty(s.Nodes[0])
			if took := time.Since(freed); took > resumeLimit {
				t.Errorf("the node was empty %v after there was space, want at most %v", took, resumeLimit)
			}
			s.WaitReady("api")
			if got := s.WaitEvicted(from, 8); !reflect.DeepEqual(scene.UIDs(got), before) {
				t.Errorf("evicted %v, want %v", scene.UIDs(got), before)
			}
			p.WaitReady()
			peak, err := program.MemoryOf(p.Pid())
			s.T.Must(err)
			t.Logf("at most %.0f MiB of memory before the disk was full, and %.0f MiB in all", normal.Highest/(1<<20), peak.Highest/(1<<20))
			if peak.Highest >= 2*normal.Highest {
				t.Errorf("the memory doubled: %.0f bytes before, %.0f in all", normal.Highest, peak.Highest)
			}
		})
	}
}

// fillDisk fills the disk with a file while deltas are written, until /readyz reports it. If the process detects the full disk before
// a write fails, the message can differ; then it retries.
func fillDisk(s *scene.Scene, p *scene.Process, file, says string) (free func()) {
	s.T.Helper()
	free = func() {
		s.T.Helper()
		s.T.Must(os.Remove(file))
	}
	tries := 0
	p.Eventually("/readyz says "+says, func() (bool, string) {
		if tries++; tries > 1 {
			free()
			p.WaitReady()
		}
		filler, err := os.Create(file)
		s.T.Must(err)
		for chunk := make([]byte, 4096); err == nil; {
			_, err = filler.Write(chunk)
		}
		_ = filler.Close()
		for i := 0; ; i++ {
			if status, said := p.Readiness(); status != http.StatusOK {
				return strings.Contains(said, says), said
			}
			s.LabelNode(s.Nodes[1], "written", fmt.Sprint(tries, "-", i))
		}
	})
	return free
}
