package program

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is the resident memory of a process in bytes.
type Memory struct{ Resident, Highest float64 }

// MemoryOf reads the memory of a process from /proc, which only Linux has.
func MemoryOf(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("memory: %w", err)
	}
	var m Memory
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kilobytes, err := strconv.ParseFloat(f[1], 64)
		switch {
		case err != nil:
		case f[0] == "VmRSS:":
			m.Resident = kilobytes * 1024
		case f[0] == "VmHWM:":
			m.Highest = kilobytes * 1024
		}
	}
	if m.Resident == 0 {
		return m, fmt.Errorf("memory: /proc/%d/status has no VmRSS", pid)
	}
	return m, nil
}
