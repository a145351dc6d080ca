package fit

import (
	corev1 "k8s.io/api/core/v1"
)

// anyAddress is the host address of a port that is open on all addresses.
const anyAddress = "0.0.0.0"

// port is a port of the host that a pod occupies.
type port struct {
	address  string
	protocol corev1.Protocol
	number   int32
}

// hostPorts lists what the containers of a pod occupy while it runs: sidecars, but no other init containers.
func hostPorts(spec *corev1.PodSpec) []port {
	var ports []port
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			ports = appendHostPorts(ports, c.Ports)
		}
	}
	for i := range spec.Containers {
		ports = appendHostPorts(ports, spec.Containers[i].Ports)
	}
	return ports
}

func appendHostPorts(ports []port, of []corev1.ContainerPort) []port {
	for _, p := range of {
		if p.HostPort <= 0 {
			continue
		}
		occupied := port{address: p.HostIP, protocol: p.Protocol, number: p.HostPort}
		if occupied.address == "" {
			occupied.address = anyAddress
		}
		if occupied.protocol == "" {
			occupied.protocol = corev1.ProtocolTCP
		}
		ports = append(ports, occupied)
	}
	return ports
}

// collides says whether two pods cannot have both ports on one node.
func (p port) collides(q port) bool {
	return p.number == q.number && p.protocol == q.protocol &&
		(p.address == q.address || p.address == anyAddress || q.address == anyAddress)
}
