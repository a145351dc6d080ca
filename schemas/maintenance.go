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

// AnnotationMaintenance is the node annotation with the maintenance that cordoned the node, a [CordonMark] as JSON. The patch
// that changes the cordon also sets or removes the annotation.
const AnnotationMaintenance = "rehome.dev/maintenance"

// AnnotationMaintained on a node reports that the work on it is done; users and programs set it. Its value
// is the name of the maintenance. A drained or held node is then released, whatever the stage. The first cordon and the
// release of a node remove the annotation, so it never applies to a later maintenance with the same name.
const AnnotationMaintained = "rehome.dev/maintained"

// MaintenanceFinalizer keeps a maintenance until its nodes are released and its conditions and marks are removed from them.
const MaintenanceFinalizer = "rehome.dev/maintenance"

// CordonMark names the maintenance that cordoned a node, and the previous state of the node.
type CordonMark struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// CordonedBefore reports that the node was cordoned before. It stays cordoned.
	CordonedBefore bool `json:"cordonedBefore"`
	// At is the time of the cordon.
	At time.Time `json:"at"`
}

// MarkOn returns the mark on a node, or nil if there is none or it is not valid.
func MarkOn(n *corev1.Node) *CordonMark {
	text, set := n.Annotations[AnnotationMaintenance]
	var mark CordonMark
	if !set || json.Unmarshal([]byte(text), &mark) != nil || mark.UID == "" {
		return nil
	}
	return &mark
}

// NodeAction is a change of a node.
type NodeAction string

// The actions.
const (
	NodeCordon NodeAction = "cordon" // cordon the node and set the mark
	NodeReturn NodeAction = "return" // restore the node and remove the mark
	NodeMark   NodeAction = "mark"   // set conditions only
)

// Prefixes of maintenances that are entries of a table of the bus and not objects of the API server, each for one node: node/NODE
// comes from a request, and sign/NODE from a drain trigger of the policy. Names of API objects have no slash.
const (
	requestedPrefix = "node/"
	signPrefix      = "sign/"
)

// RequestedMaintenance returns the name of the maintenance of a node for requests.
func RequestedMaintenance(node string) string { return requestedPrefix + node }

// SignMaintenance returns the name of the maintenance of a node for drain triggers.
func SignMaintenance(node string) string { return signPrefix + node }

// InTable reports whether the maintenance with this name is an entry of the table, and returns its node. Any other name with a
// slash is invalid.
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

// isNodeName reports whether s is a valid node name: words of a-z, 0-9 and - separated by dots, without - at their ends.
func isNodeName(s string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789"
	for word := range strings.SplitSeq(s, ".") {
		if strings.Trim(word, plain+"-") != "" || strings.Trim(word, "-") != word || word == "" {
			return false
		}
	}
	return len(s) <= 253
}
