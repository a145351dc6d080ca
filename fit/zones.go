package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// zoneLabel is a label of a volume that says in which zones or regions it is.
type zoneLabel struct {
	key    string
	values []string
}

// zoneKeys are the labels that bind a volume to zones and regions, each with the label that newer nodes have instead.
func zoneKeys() [4][2]string {
	return [4][2]string{
		{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone},
		{corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
		{corev1.LabelTopologyZone, corev1.LabelTopologyZone},
		{corev1.LabelTopologyRegion, corev1.LabelTopologyRegion},
	}
}

// zoneLabels reads the labels of a volume. Several zones are joined by two underscores; a label with an empty one says
// nothing.
func zoneLabels(of map[string]string) []zoneLabel {
	var found []zoneLabel
	for _, key := range zoneKeys() {
		value, has := of[key[0]]
		if !has {
			continue
		}
		values := strings.Split(value, "__")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if !slices.Contains(values, "") {
			found = append(found, zoneLabel{key: key[0], values: values})
		}
	}
	return found
}

// inZones says whether a node is where a volume is. A node without any such label is everywhere.
func inZones(nodeLabels map[string]string, volume []zoneLabel) bool {
	keys := zoneKeys()
	if !slices.ContainsFunc(keys[:], func(key [2]string) bool { _, has := nodeLabels[key[0]]; return has }) {
		return true
	}
	for _, zone := range volume {
		value, has := nodeLabels[zone.key]
		for _, key := range keys {
			if !has && key[0] == zone.key {
				value, has = nodeLabels[key[1]]
			}
		}
		if !has || !slices.Contains(zone.values, value) {
			return false
		}
	}
	return true
}
