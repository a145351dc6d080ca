package cli

import (
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestStatusOfFullBus(t *testing.T) {
	bustest.SmallDisk(t, "96m", func(t *testing.T, disk bustest.Disk) {
		t.Setenv("TMPDIR", disk.Dir)
		busOf(t)
		disk.Fill(t, 32<<20) // half of the default reserve
		expect.Eventually(t, "the status names the reason", func() bool {
			out, err := execute(t, "status")
			expect.Must(t, err)
			return strings.Contains(out, "\nthe bus accepts no events: its disk is full\n")
		})
	})
}
