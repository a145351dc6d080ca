package main

import (
	"io"
	"sync"
)

// terminal lets the demo and Rehome write to one place, a whole line at a time.
type terminal struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Write(p)
}
