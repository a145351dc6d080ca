package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// killTimeout limits the wait for killed children. A killed process ends within milliseconds, unless it hangs in the kernel.
const killTimeout = 5 * time.Second

// Serve runs a supervisor: it executes the commands from in, writes replies to out, and returns when in ends, unless the
// supervisor was detached, or on SIGTERM or SIGINT. It returns after every child has ended and dir is removed.
//
// Serve uses the calling goroutine, its thread, and the signals of the process. Call it from main and do nothing else. It returns
// an error if another supervisor holds dir, or if the cleanup is incomplete.
func Serve(dir string, in io.Reader, out io.Writer) error {
	// The kernel kills the children when the thread that started them ends.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)

	lock, err := hold(dir)
	if err != nil {
		return err
	}
	defer lock.Close()

	s := &server{out: json.NewEncoder(out), children: map[string]*child{}, exits: make(chan *child)}
	s.run(readCommands(in), signals)
	return errors.Join(s.killAll(), os.RemoveAll(dir))
}

// readCommands decodes commands until in ends, or until a line is invalid, which counts as the end.
func readCommands(in io.Reader) <-chan command {
	commands := make(chan command)
	go func() {
		defer close(commands)
		decoder := json.NewDecoder(bufio.NewReader(in))
		for {
			var c command
			if decoder.Decode(&c) != nil {
				return
			}
			commands <- c
		}
	}()
	return commands
}

// server is the state of Serve. It belongs to one goroutine.
type server struct {
	out      *json.Encoder
	children map[string]*child
	exits    chan *child
	detached bool
}

// run executes commands until the end.
func (s *server) run(commands <-chan command, signals <-chan os.Signal) {
	for {
		select {
		case c, open := <-commands:
			if !open && !s.detached {
				return
			}
			if !open {
				commands = nil
				continue
			}
			s.send(message{Reply: s.do(c)})
		case c := <-s.exits:
			s.exited(c)
		case <-signals:
			return
		}
	}
}

// send ignores errors: if the reader is gone, the commands also end.
func (s *server) send(m message) { _ = s.out.Encode(m) }

// do executes one command.
func (s *server) do(c command) *reply {
	switch {
	case c.Start != nil:
		return s.start(*c.Start)
	case c.Stop != "":
		return s.stop(c.Stop)
	case c.Detach:
		s.detached = true
		return &reply{}
	}
	return &reply{Error: "empty command"}
}

func (s *server) start(p Process) *reply {
	if s.children[p.Name] != nil {
		return &reply{Error: fmt.Sprintf("%s runs already", p.Name)}
	}
	c, err := startChild(p, s.exits)
	if err != nil {
		return &reply{Error: err.Error()}
	}
	s.children[p.Name] = c
	return &reply{Pid: c.cmd.Process.Pid}
}

func (s *server) stop(name string) *reply {
	c := s.children[name]
	if c == nil {
		return &reply{Error: fmt.Sprintf("%s does not run", name)}
	}
	delete(s.children, name)
	if err := c.kill(time.After(killTimeout)); err != nil {
		return &reply{Error: err.Error()}
	}
	return &reply{}
}

// exited reports the unexpected end of a child.
func (s *server) exited(c *child) {
	if s.children[c.process.Name] != c {
		return
	}
	delete(s.children, c.process.Name)
	s.send(message{Exit: &Exit{Name: c.process.Name, State: c.cmd.ProcessState.String(), Log: c.process.Log}})
}

// killAll kills the children at once and waits until the last one is gone.
func (s *server) killAll() error {
	timeout := time.After(killTimeout)
	for _, c := range s.children {
		_ = c.cmd.Process.Kill() // An error means that it has ended already.
	}
	var failures []error
	for _, c := range s.children {
		failures = append(failures, c.kill(timeout))
	}
	return errors.Join(failures...)
}
