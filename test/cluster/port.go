package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// port is a reserved loopback port for children of this process.
type port struct {
	number  int
	release func()
}

// address returns the port as host:port.
func (p port) address() string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(p.number)) }

// reservePorts finds n free ports. On an error none is reserved.
func reservePorts(n int) ([]port, error) {
	var ports []port
	for range n {
		p, err := reservePort()
		if err != nil {
			releasePorts(ports)
			return nil, fmt.Errorf("free port: %w", err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func releasePorts(ports []port) {
	for _, p := range ports {
		p.release()
	}
}

// freeKubeletPort finds a port for kwok, which cannot share a reserved one. It is below the ports that the kernel assigns to
// connections.
func freeKubeletPort() (number int, err error) {
	for range 100 {
		number = 10_000 + rand.IntN(10_000)
		l, failed := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", fmt.Sprint(number)))
		if err = failed; err == nil {
			return number, l.Close()
		}
	}
	return 0, fmt.Errorf("free port for kwok: %w", err)
}
