package httpfunction

import "sync"

// admission is what a [gate] says to who wants to enter.
type admission int

const (
	admitted admission = iota
	full
	closed
)

// gate lets in at most so many at once, and nobody once it is closed. Its methods may be called from many goroutines.
type gate struct {
	most int

	mu     sync.Mutex
	inside int
	shut   bool
	empty  chan struct{} // closed when the gate is and nobody is inside
}

func newGate(most int) *gate { return &gate{most: most, empty: make(chan struct{})} }

// enter lets the caller in, who then has to leave, or says why not.
func (g *gate) enter() admission {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.shut:
		return closed
	case g.inside == g.most:
		return full
	}
	g.inside++
	return admitted
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut && g.inside == 0 {
		close(g.empty)
	}
}

// close lets nobody in any more. What it returns is closed when those inside have left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut && g.inside == 0 {
		close(g.empty)
	}
	g.shut = true
	return g.empty
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// count is how many are inside.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}
