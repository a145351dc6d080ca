package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
)

// ErrGone means that the supervisor ended too early.
var ErrGone = errors.New("supervisor is gone")

// Config configures a supervisor.
type Config struct {
	// Dir is an existing directory. The supervisor owns it, and removes it with all content when it ends.
	Dir string
	// Log is the file for errors of the supervisor. Put it outside of Dir to read it afterwards.
	Log string
}

// Supervisor is the handle of a supervisor process.
type Supervisor struct {
	cmd      *exec.Cmd
	commands io.WriteCloser
	encoder  *json.Encoder
	calling  sync.Mutex // Held from a command to its reply.
	replies  chan reply
	exits    chan Exit
	ended    chan struct{}
	waitErr  error // Set before ended is closed.
	detached atomic.Bool
}

// Launch starts the supervise command at path. The supervisor ends with the calling process, unless [Supervisor.Detach] is
// called.
func Launch(path string, config Config) (*Supervisor, error) {
	log, err := os.OpenFile(config.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of the supervisor: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(path, config.Dir)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Out of reach of Ctrl-C.
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the supervisor: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe from the supervisor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	s := &Supervisor{
		cmd: cmd, commands: in, encoder: json.NewEncoder(in),
		replies: make(chan reply, 1), exits: make(chan Exit, 1), ended: make(chan struct{}),
	}
	go s.listen(out)
	return s, nil
}

// listen delivers the supervisor's messages until it ends.
func (s *Supervisor) listen(out io.Reader) {
	defer close(s.ended)
	decoder := json.NewDecoder(out)
	for {
		var m message
		if decoder.Decode(&m) != nil {
			break
		}
		if m.Reply != nil {
			s.replies <- *m.Reply
		}
		if m.Exit != nil {
			select {
			case s.exits <- *m.Exit:
			default: // Only the first exit matters; the others follow from it.
			}
		}
	}
	s.waitErr = s.cmd.Wait()
}

// Exits delivers the first child that ended unexpectedly. It is never closed.
func (s *Supervisor) Exits() <-chan Exit { return s.exits }

// Ended is closed when the supervisor process has ended.
func (s *Supervisor) Ended() <-chan struct{} { return s.ended }

// Pid returns the process id of the supervisor.
func (s *Supervisor) Pid() int { return s.cmd.Process.Pid }

// Start runs p as a child and returns its process id.
func (s *Supervisor) Start(p Process) (int, error) {
	r, err := s.call(command{Start: &p})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Name, err)
	}
	return r.Pid, nil
}

// Stop kills the child called name and returns when it has ended.
func (s *Supervisor) Stop(name string) error {
	if _, err := s.call(command{Stop: name}); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return nil
}

// Detach lets the supervisor outlive the calling process. After that, only [Terminate] ends it, and not Close.
func (s *Supervisor) Detach() error {
	if _, err := s.call(command{Detach: true}); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	s.detached.Store(true)
	return s.commands.Close()
}

// Detached reports whether the supervisor outlives the calling process.
func (s *Supervisor) Detached() bool { return s.detached.Load() }

// call sends c and waits for its reply.
func (s *Supervisor) call(c command) (reply, error) {
	s.calling.Lock()
	defer s.calling.Unlock()
	if err := s.encoder.Encode(c); err != nil {
		return reply{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	select {
	case r := <-s.replies:
		if r.Error != "" {
			return reply{}, errors.New(r.Error)
		}
		return r, nil
	case <-s.ended:
		return reply{}, ErrGone
	}
}

// Close ends the supervisor and waits until it, its children, and its directory are gone. It returns an error if the cleanup is
// incomplete. A second call is harmless. Close does not end a detached supervisor.
func (s *Supervisor) Close() error {
	if s.Detached() {
		return nil
	}
	if err := s.commands.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close the pipe to the supervisor: %w", err)
	}
	<-s.ended
	if s.waitErr != nil {
		return fmt.Errorf("supervisor: %w", s.waitErr)
	}
	return nil
}
