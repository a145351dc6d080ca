package cluster

import (
	"os"
	"syscall"
)

// soReusePort is SO_REUSEPORT, which package syscall lacks on some architectures.
const soReusePort = 0xf

// reservePort binds a socket to a free port without listening on it. The kernel does not assign the port to another process, and
// components with port sharing can listen on it, even after restarts.
func reservePort() (port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return port{}, os.NewSyscallError("socket", err)
	}
	release := func() { syscall.Close(fd) }
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReusePort, 1); err != nil {
		release()
		return port{}, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		release()
		return port{}, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		release()
		return port{}, os.NewSyscallError("getsockname", err)
	}
	return port{number: name.(*syscall.SockaddrInet4).Port, release: release}, nil
}
