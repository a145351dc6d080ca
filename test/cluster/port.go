package cluster

import (
	"fmt"
	"net"
)

// port is a free loopback port that is kept for this process's children.
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
