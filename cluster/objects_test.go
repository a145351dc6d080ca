package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// Objects for tests of capacity.
var (
	amount       = fixtures.Resources
	roomy        = fixtures.Node
	guest        = fixtures.Pod
	asks         = fixtures.Requests
	volumed      = fixtures.Volume
	claims       = fixtures.Claims
	claimed      = fixtures.Claim
	disk         = fixtures.Disk
	only         = fixtures.OnlyOn
	onNode       = fixtures.NodeSelector
	storageClass = fixtures.StorageClass

	ofOwners      = fixtures.OwnedBy
	pdb           = fixtures.Budget
	selecting     = fixtures.Selecting
	namespace     = fixtures.Namespace
	priorityClass = fixtures.PriorityClass
	conditioned   = fixtures.Readiness
)

const csi = fixtures.CSIDriver

// named returns a node.
func named(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "node"}}
	for _, change := range changes {
		change(n)
	}
	return n
}

// placed returns a pod of the app api on a node.
func placed(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{"app": "api"}}}
	p.Spec.NodeName = node
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs"}}
	return p
}
