package request

import (
	"slices"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	longestNodeName   = 253
	longestProviderID = 1024
)

// NodeStages returns the stages that a request can name, in order.
func NodeStages() []v1alpha1.Stage {
	return []v1alpha1.Stage{v1alpha1.Cordon, v1alpha1.Drain, v1alpha1.Complete}
}

// checkMaintenance validates the fields of a maintenance.
func checkMaintenance(r schemas.Request) *End {
	m := r.Maintenance
	switch {
	case r.Action != schemas.ActionMaintain && m == nil:
		return nil
	case r.Action != schemas.ActionMaintain:
		return Malformed("maintenance: only allowed with action %s", schemas.ActionMaintain)
	case m == nil:
		return Malformed("maintenance: want a node and a stage, got none")
	case r.Profile != "":
		return Malformed("profile: not allowed with action %s", schemas.ActionMaintain)
	case (m.Node == "") == (m.ProviderID == ""):
		return Malformed("maintenance: want either node or providerID")
	case m.Node != "" && !isNode(m.Node):
		return Malformed("maintenance.node: want the name of a node, got %.*q", longestNodeName, m.Node)
	case len(m.ProviderID) > longestProviderID:
		return Malformed("maintenance.providerID: want at most %d characters, got %d", longestProviderID, len(m.ProviderID))
	case !slices.Contains(NodeStages(), m.Stage):
		return Malformed("maintenance.stage: want one of %v, got %q", NodeStages(), m.Stage)
	}
	if no := checkDeadline(*m); no != nil {
		return no
	}
	return checkForce(*m)
}

func checkDeadline(m schemas.NodeRequest) *End {
	if m.Deadline != nil && (m.Deadline.Duration <= 0 || m.Stage != v1alpha1.Drain) {
		return Malformed("maintenance.deadline: want a positive duration, and stage %s", v1alpha1.Drain)
	}
	known := []v1alpha1.OnDeadline{v1alpha1.Continue, v1alpha1.Hold, v1alpha1.Release}
	if m.OnDeadline != "" && (m.Deadline == nil || !slices.Contains(known, m.OnDeadline)) {
		return Malformed("maintenance.onDeadline: want one of %v, together with a deadline, got %q", known, m.OnDeadline)
	}
	return nil
}

func checkForce(m schemas.NodeRequest) *End {
	if len(m.Force) > 0 && m.Stage == v1alpha1.Complete {
		return Malformed("maintenance.force: not allowed with stage %s, which has no guards", v1alpha1.Complete)
	}
	guards := []v1alpha1.Guard{v1alpha1.AllNodes, v1alpha1.ControlPlane, v1alpha1.SingleNode}
	for i, guard := range m.Force {
		if !slices.Contains(guards, guard) || slices.Contains(m.Force[:i], guard) {
			return Malformed("maintenance.force[%d]: want one of %v, each once, got %q", i, guards, guard)
		}
	}
	return nil
}

func isNode(name string) bool {
	_, is := schemas.InTable(schemas.RequestedMaintenance(name))
	return is
}
