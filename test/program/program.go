// Package program builds rehome and runs it as processes that a test can kill.
package program

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
)

// Program is one process of rehome. [Start] makes it. It is safe for concurrent use.
type Program struct {
	Address string // of /metrics, /healthz and /readyz
	Log     *Log   // what it says
	Ended   <-chan struct{}

	command *exec.Cmd
	err     error
}

// Start starts the binary with arguments and an environment, which says where it serves. It runs until it is killed, or
// ends by itself.
func Start(binary string, arguments, environment []string) (*Program, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	p := &Program{Address: address, Log: &Log{}, Ended: ended, command: exec.Command(binary, arguments...)}
	p.command.Env = append(append(os.Environ(), "REHOME_HTTP_ADDRESS="+address), environment...)
	p.command.Stdout, p.command.Stderr = p.Log, p.Log
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start rehome: %w", err)
	}
	go func() {
		p.err = p.command.Wait()
		close(ended)
	}()
	return p, nil
}

// Kill ends the process as `kill -9` does, and waits until it is gone.
func (p *Program) Kill() {
	_ = p.command.Process.Kill()
	<-p.Ended
}

// Signal sends a signal to the process.
func (p *Program) Signal(s os.Signal) error { return p.command.Process.Signal(s) }

// Err is how the process ended, once Ended is closed. nil: with the exit code 0.
func (p *Program) Err() error {
	<-p.Ended
	return p.err
}

// Get asks the process over HTTP, and returns the status and what it says; 0 and the error when it does not answer.
func (p *Program) Get(path string) (status int, body string) {
	response, err := http.Get("http://" + p.Address + "/" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// FreeAddress is an address of the loopback interface that nobody listens on. Somebody else can take it before it is used.
func FreeAddress() (string, error) {
	addresses, err := FreeAddresses(1)
	if err != nil {
		return "", err
	}
	return addresses[0], nil
}

// FreeAddresses are n of them, each another one: who asks n times for one can get the same again.
func FreeAddresses(n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses[i] = l.Addr().String()
	}
	return addresses, nil
}

// Log is what a process writes. It may be read meanwhile. The zero value is empty.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
