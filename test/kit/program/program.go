// Package program builds rehome and runs it as processes that a test can kill.
package program

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
)

// Program is a process of rehome. Use [Start] to make one. It is safe for concurrent use.
type Program struct {
	Address string // of /metrics, /healthz, and /readyz
	Log     *Log   // its output
	Ended   <-chan struct{}

	command *exec.Cmd
	err     error
}

// Start starts the binary with these arguments and this environment, which must set the address.
func Start(binary string, arguments, environment []string) (*Program, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	p := &Program{Address: address, Log: &Log{}, Ended: ended, command: exec.Command(binary, arguments...)}
	p.command.Env = append(append(os.Environ(), "REHOME_HTTP_ADDRESS="+address, "REHOME_API_LOCAL="), environment...)
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

// Kill ends the process like `kill -9`, and waits until it is gone.
func (p *Program) Kill() {
	_ = p.command.Process.Kill()
	<-p.Ended
}

// Signal sends a signal to the process.
func (p *Program) Signal(s os.Signal) error { return p.command.Process.Signal(s) }

// Pid returns the process ID.
func (p *Program) Pid() int { return p.command.Process.Pid }

// Err returns the error of the process after Ended is closed. nil means exit code 0.
func (p *Program) Err() error {
	<-p.Ended
	return p.err
}

// Get sends an HTTP request to the process, and returns the status and the body, or 0 and the error.
func (p *Program) Get(path string) (status int, body string) {
	return Get("http://" + p.Address + "/" + path)
}

// Get sends an HTTP request, and returns the status and the body, or 0 and the error.
func Get(url string) (status int, body string) {
	response, err := http.Get(url)
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

// FreeAddress returns an unused address of the loopback interface.
func FreeAddress() (string, error) {
	addresses, err := FreeAddresses(1)
	if err != nil {
		return "", err
	}
	return addresses[0], nil
}

// The ports of [FreeAddresses]. The kernel gives connections and servers without a port those above, so that they cannot take a port
// between the choice and its use.
const firstPort, ports = 20000, 12768

// FreeAddresses returns n different addresses.
func FreeAddresses(n int) ([]string, error) {
	ports, err := FreePorts(n)
	addresses := make([]string, len(ports))
	for i, port := range ports {
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return addresses, err
}

// FreePorts returns n different ports of [FreeAddresses].
func FreePorts(n int) ([]int, error) {
	numbers := make([]int, n)
	for i := range numbers {
		l, err := listen()
		if err != nil {
			return nil, err
		}
		defer l.Close()
		numbers[i] = l.Addr().(*net.TCPAddr).Port
	}
	return numbers, nil
}

// given are the ports that this process has chosen. It chooses none of them again: a program may not listen yet, or start again later.
var given sync.Map

// listen listens on a random port that is free.
func listen() (l net.Listener, err error) {
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		if _, before := given.Load(port); before {
			continue
		}
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			given.Store(port, true)
			return l, nil
		}
	}
	return nil, cmp.Or(err, errors.New("no port is left"))
}

// Log is the output of a process. It is safe for concurrent use. The zero value is empty.
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
