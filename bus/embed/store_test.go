package embed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestStoppedStore has a directory of a stream that the server does not know. Then it has a file in the place of all streams, so
// the reason changes and each restart of JetStream fails.
func TestStoppedStore(t *testing.T) {
	dir := t.TempDir()
	s, err := Start(Options{StoreDir: dir})
	expect.Must(t, err)
	t.Cleanup(s.Stop)
	s.unwatch()
	s.watching.Wait()
	streams := filepath.Join(dir, "jetstream")
	expect.Must(t, os.MkdirAll(filepath.Join(streams, "$G", "streams", "a"), 0o700))
	began := time.Now()
	var got []string
	for _, seconds := range []int{0, 10, 11, 12, 22, 23, 70} {
		if seconds == 11 {
			expect.Must(t, os.RemoveAll(streams))
			expect.Must(t, os.WriteFile(streams, nil, 0o600))
		}
		now := began.Add(time.Duration(seconds) * time.Second)
		s.store.look(now)
		got = append(got, fmt.Sprintf("%ds: stopped %t, alive %t", seconds, errors.Is(s.Ready(), ErrStopped), s.Alive(now) == nil))
	}
	expect.Equal(t, "states", got, []string{
		"0s: stopped false, alive true", "10s: stopped true, alive true", "11s: stopped true, alive true", "12s: stopped true, alive true",
		"22s: stopped true, alive true", "23s: stopped true, alive true", "70s: stopped true, alive false",
	})
}
