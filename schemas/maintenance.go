package schemas

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaintenanceStrategy is the strategy in the intents and verdicts of maintenances, which the maintenance role publishes.
const MaintenanceStrategy = "Maintenance"

// AnnotationMaintenance is the annotation by which a node says which maintenance cordoned it, a [CordonMark] as JSON. It is
// put there and taken away by the same patch as the cordon.
const AnnotationMaintenance = "rehome.dev/maintenance"

// AnnotationMaintained is the annotation by which people and programs say that the work on a node is done: its value is the
// name of the maintenance. A node that is drained or held is then given back, whatever the stage. It counts from the cordon
// on: the patches that cordon and that give back take it away, so that none is left over for a later maintenance of that name.
const AnnotationMaintained = "rehome.dev/maintained"

// MaintenanceFinalizer keeps a maintenance until its nodes are given back and what it said on them is taken back.
const MaintenanceFinalizer = "rehome.dev/maintenance"

// CordonMark says who cordoned a node, and how it was before.
type CordonMark struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// CordonedBefore: the node was cordoned already, and stays so.
	CordonedBefore bool `json:"cordonedBefore"`
	// At is when it was done.
	At time.Time `json:"at"`
}

// MarkOn says which maintenance cordoned a node. nil: none did. A mark that cannot be read counts as none.
func MarkOn(n *corev1.Node) *CordonMark {
	text, set := n.Annotations[AnnotationMaintenance]
	var mark CordonMark
	if !set || json.Unmarshal([]byte(text), &mark) != nil || mark.UID == "" {
		return nil
	}
	return &mark
}

// NodeAction is what is done to a node.
type NodeAction string

// The actions.
const (
	NodeCordon NodeAction = "cordon" // no new pods, with the mark
	NodeReturn NodeAction = "return" // as it was before, without the mark
	NodeMark   NodeAction = "mark"   // only the conditions
)

// What the names of maintenances begin with that are no objects of the API server but entries of a table of the bus, each of
// which is about one node: node/NODE was asked for by a request, and sign/NODE by a sign on the node that the policy names. No
// object of the API server can have a slash in its name.
const (
	requestedPrefix = "node/"
	signPrefix      = "sign/"
)

// RequestedMaintenance is the name of the maintenance of a node that requests ask for.
func RequestedMaintenance(node string) string { return requestedPrefix + node }

// SignMaintenance is the name of the maintenance of a node that a sign on it asks for.
func SignMaintenance(node string) string { return signPrefix + node }

// InTable says whether the maintenance of that name is an entry of the table, and of which node. A name with a slash that is
// none of [RequestedMaintenance] and [SignMaintenance] of a name that a node can have is no name of a maintenance at all.
func InTable(maintenance string) (node string, is bool) {
	node, is = strings.CutPrefix(maintenance, requestedPrefix)
	if !is {
		node, is = strings.CutPrefix(maintenance, signPrefix)
	}
	if !is || !isNodeName(node) {
		return "", false
	}
	return node, true
}

// isNodeName says whether s is a name of a node as the API server takes it: words of a-z, 0-9 and - with dots between them,
// none of which begins or ends with a -.
func isNodeName(s string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789"
	for word := range strings.SplitSeq(s, ".") {
		if strings.Trim(word, plain+"-") != "" || strings.Trim(word, "-") != word || word == "" {
			return false
		}
	}
	return len(s) <= 253
}
