//go:build unix && !linux

package cluster

import "net"

// reservePort finds a port that is free now. It does not reserve it.
func reservePort() (port, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return port{}, err
	}
	number := listener.Addr().(*net.TCPAddr).Port
	return port{number: number, release: func() {}}, listener.Close()
}
