package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// anyAddress is the host address of a port that is open on all addresses.
const anyAddress = "0.0.0.0"

// port is a host port that a pod uses.
type port struct {
	address  string
	protocol corev1.Protocol
	number   int32
}

// hostPorts returns the host ports that the containers of a pod use while it runs, including sidecars but no other init
// containers.
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

// collides reports whether two pods with these ports cannot share a node.
func (p port) collides(q port) bool {
	return p.number == q.number && p.protocol == q.protocol &&
		(p.address == q.address || p.address == anyAddress || q.address == anyAddress)
}

// disk is a volume in a pod spec of a kind that two pods on a node cannot always share.
type disk struct {
	volume string
	// ids are its possible names; disks with a common one are the same.
	ids []string
	// readOnly disks can be shared by readers.
	readOnly bool
}

// exclusiveDisks returns the disks of a pod. An Amazon disk is never shared, and a Ceph disk is identified by each of
// its monitors.
func exclusiveDisks(spec *corev1.PodSpec) []disk {
	var disks []disk
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.GCEPersistentDisk != nil:
			g := v.GCEPersistentDisk
			disks = append(disks, disk{v.Name, []string{"gce " + g.PDName}, g.ReadOnly})
		case v.AWSElasticBlockStore != nil:
			disks = append(disks, disk{v.Name, []string{"aws " + v.AWSElasticBlockStore.VolumeID}, false})
		case v.ISCSI != nil:
			disks = append(disks, disk{v.Name, []string{"iscsi " + v.ISCSI.IQN}, v.ISCSI.ReadOnly})
		case v.RBD != nil:
			d := disk{volume: v.Name, readOnly: v.RBD.ReadOnly}
			for _, monitor := range v.RBD.CephMonitors {
				d.ids = append(d.ids, "rbd "+monitor+" "+v.RBD.RBDPool+" "+v.RBD.RBDImage)
			}
			disks = append(disks, d)
		}
	}
	return disks
}

// excludes reports whether two pods with these disks cannot share a node.
func (d *disk) excludes(other *disk) bool {
	if d.readOnly && other.readOnly {
		return false
	}
	return slices.ContainsFunc(d.ids, func(id string) bool { return slices.Contains(other.ids, id) })
}
