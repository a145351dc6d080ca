package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor times in /proc: USER_HZ, which is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// processorTime returns how long the processes have run, in user mode and in the kernel, all their threads together.
func processorTime(pids ...int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("processor time: %w", err)
		}
		// The second field is the name in parentheses and may hold anything; utime and stime are the 14th and 15th.
		rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(rest) < 13 {
			return 0, fmt.Errorf("processor time: /proc/%d/stat has %d fields", pid, len(rest))
		}
		user, userErr := strconv.ParseInt(rest[11], 10, 64)
		system, systemErr := strconv.ParseInt(rest[12], 10, 64)
		if err := errors.Join(userErr, systemErr); err != nil {
			return 0, fmt.Errorf("processor time: /proc/%d/stat: %w", pid, err)
		}
		sum += time.Duration(user+system) * tick
	}
	return sum, nil
}

// machine is a moment in the life of all processors.
type machine struct{ total, idle float64 }

func watchMachine() (machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var m machine
	for i, field := range strings.Fields(line)[1:] {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return m, fmt.Errorf("/proc/stat: %w", err)
		}
		if i >= 8 { // guests, which are counted as users too
			break
		}
		m.total += v
		if i == 3 || i == 4 { // idle, and idle while waiting for a disk
			m.idle += v
		}
	}
	return m, nil
}

// busy returns the share of all processors that was in use since m; 0 when that cannot be read.
func (m machine) busy() float64 {
	now, err := watchMachine()
	if err != nil || now.total <= m.total {
		return 0
	}
	return 1 - (now.idle-m.idle)/(now.total-m.total)
}
