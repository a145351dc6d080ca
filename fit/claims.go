package fit

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
)

// claims are the claims of a pod, by their effect on where the pod can go. The zero value is a pod without claims.
type claims struct {
	storage *storage
	// bound are the existing volumes of the pod.
	bound []*volume
	// zones are the zones and regions in the labels of these volumes.
	zones []zoneLabel
	// waiting are the claims whose volume is chosen or made for the node, smallest first.
	waiting []*corev1.PersistentVolumeClaim
	// exclusive are the claims that only one pod may use.
	exclusive []types.NamespacedName
	// attaches is the driver of each volume that must be attached, by the volume's identity.
	attaches map[string]string
}

// claimsOf reads the claims of a pod. The verdict has a reason if it is the same for every node.
func (s *storage) claimsOf(pod *corev1.Pod) (claims, Verdict) {
	found := claims{storage: s, attaches: map[string]string{}}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			continue
		}
		claim, verdict := s.claimOf(pod, v)
		if verdict.Reason == "" {
			verdict = found.take(claim, v.Ephemeral != nil)
		}
		if verdict.Reason != "" {
			return claims{}, verdict
		}
	}
	slices.SortStableFunc(found.waiting, func(a, b *corev1.PersistentVolumeClaim) int {
		x, y := a.Spec.Resources.Requests[corev1.ResourceStorage], b.Spec.Resources.Requests[corev1.ResourceStorage]
		return x.Cmp(y)
	})
	return found, Verdict{}
}

// claimOf returns the claim behind a volume of a pod. The replacement of a pod gets new ephemeral claims.
func (s *storage) claimOf(pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolumeClaim, Verdict) {
	if v.Ephemeral != nil && pod.Spec.NodeName != "" {
		return s.newClaim(pod, v)
	}
	name := ephemeral.VolumeClaimName(pod, v)
	if v.PersistentVolumeClaim != nil {
		name = v.PersistentVolumeClaim.ClaimName
	}
	claim := s.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
	switch {
	case claim == nil, claim.Status.Phase == corev1.ClaimLost, claim.DeletionTimestamp != nil:
		return nil, no(ClaimUnusable, name)
	case v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
		return nil, no(ClaimUnusable, name)
	}
	return claim, Verdict{}
}

// newClaim returns the claim that will be made for the replacement. It can be judged if its volume waits for the pod.
func (s *storage) newClaim(pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolumeClaim, Verdict) {
	name := ephemeral.VolumeClaimName(pod, v)
	template := v.Ephemeral.VolumeClaimTemplate
	if template == nil {
		return nil, no(ClaimUnusable, name)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	claim.Namespace, claim.Name = pod.Namespace, name
	if claim.Spec.StorageClassName == nil {
		class := s.defaultClass()
		claim.Spec.StorageClassName = &class
	}
	if !s.waits(classOf(claim)) {
		return nil, unjudged(NewVolume, name)
	}
	return claim, Verdict{}
}

// take classifies a claim.
func (c *claims) take(claim *corev1.PersistentVolumeClaim, isEphemeral bool) Verdict {
	_, completed := claim.Annotations[bindCompleted]
	volume := c.storage.volumes[claim.Spec.VolumeName]
	switch {
	case claim.Spec.VolumeName == "" && c.storage.waits(classOf(claim)):
		c.waiting = append(c.waiting, claim)
	case !completed || volume == nil:
		return no(ClaimUnusable, claim.Name)
	default:
		c.bound = append(c.bound, volume)
		if !isEphemeral {
			c.zones = append(c.zones, volume.zones...) // The scheduler does not ask for the zone of ephemeral ones.
		}
	}
	if !isEphemeral && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
		c.exclusive = append(c.exclusive, keyOf(claim))
	}
	if id, driver := c.storage.identify(claim); driver != "" {
		c.attaches[id] = driver
	}
	return Verdict{}
}

// identify returns the identity and the driver of the volume to attach for a claim. Before the volume exists, the claim
// stands for it. The driver is empty if the attachment does not count.
func (s *storage) identify(claim *corev1.PersistentVolumeClaim) (id, driver string) {
	if v := s.volumes[claim.Spec.VolumeName]; v != nil {
		if v.Spec.CSI == nil {
			return "", ""
		}
		return attachmentID(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle), v.Spec.CSI.Driver
	}
	class := s.classes[classOf(claim)]
	if class == nil || class.Provisioner == "" || strings.HasPrefix(class.Provisioner, "kubernetes.io/") {
		return "", ""
	}
	return "unbound\x00" + claim.Namespace + "/" + claim.Name, class.Provisioner
}

// attachmentID identifies a volume among all drivers.
func attachmentID(driver, handle string) string { return driver + "\x00" + handle }

// on judges a node by where the volumes are and can be. A verdict without a reason is no objection.
func (c *claims) on(h *host) Verdict {
	for _, v := range c.bound {
		if !v.usableOn(h.node.Labels) {
			return no(VolumeNode, v.Name)
		}
	}
	if len(c.zones) > 0 && !inZones(h.node.Labels, c.zones) {
		return no(VolumeZone, "")
	}
	if len(c.waiting) > 0 {
		return c.provided(h)
	}
	return Verdict{}
}

// provided judges whether each waiting claim gets a volume on a node: an existing one, or else a new one.
func (c *claims) provided(h *host) Verdict {
	var unmatched []*corev1.PersistentVolumeClaim
	taken := map[string]bool{}
	for _, claim := range c.waiting {
		chosen, isChosen := claim.Annotations[selectedNode]
		if isChosen && chosen != h.name {
			return no(VolumeUnavailable, claim.Name)
		}
		if !isChosen {
			if v := c.storage.match(claim, h, taken); v != nil {
				taken[v.Name] = true
				continue
			}
		}
		unmatched = append(unmatched, claim)
	}
	for _, claim := range unmatched {
		if !c.storage.canMake(claim, h) {
			return no(VolumeUnavailable, claim.Name)
		}
	}
	return Verdict{}
}

// noProvisioner is the provisioner of classes whose volumes are made by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// canMake reports whether a new volume for a claim can be made for a node.
func (s *storage) canMake(claim *corev1.PersistentVolumeClaim, h *host) bool {
	class := s.classes[classOf(claim)]
	if class == nil || class.Provisioner == "" || class.Provisioner == noProvisioner {
		return false
	}
	if !isAllowed(class, h.node.Labels) {
		return false
	}
	size, hasSize := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return !hasSize || s.suffices(class, size.Value(), h.node.Labels)
}

// attachable judges a node by its limit of attached volumes. A verdict without a reason is no objection.
func (c *claims) attachable(h *host) Verdict {
	if len(c.attaches) == 0 || len(c.storage.limits[h.name]) == 0 {
		return Verdict{}
	}
	attached, ok := c.storage.attached(h)
	if !ok {
		return no(VolumeLimit, "a claim that belongs to no pod")
	}
	count := map[string]int64{}
	for _, driver := range attached {
		count[driver]++
	}
	// Attachments without a pod count, but a new pod does not share them.
	for id, driver := range c.storage.leftAttached(h.name) {
		if _, counted := attached[id]; !counted {
			count[driver]++
		}
	}
	more := map[string]int64{}
	for id, driver := range c.attaches {
		if _, shared := attached[id]; !shared {
			more[driver]++
		}
	}
	for _, driver := range slices.Sorted(maps.Keys(more)) {
		if limit, limited := c.storage.limits[h.name][driver]; limited && count[driver]+more[driver] > limit {
			return no(VolumeLimit, driver)
		}
	}
	return Verdict{}
}

// attached returns the driver of each volume that the pods on a node have, by the volume's identity. ok is false if
// another owner has an ephemeral claim of one of them.
func (s *storage) attached(h *host) (found map[string]string, ok bool) {
	found = map[string]string{}
	for _, p := range h.withVolumes {
		for _, ref := range p.claims {
			claim := s.claims[types.NamespacedName{Namespace: p.namespace, Name: ref.name}]
			if claim == nil {
				continue
			}
			if owner := metav1.GetControllerOfNoCopy(claim); ref.ephemeral && (owner == nil || owner.UID != p.uid) {
				return nil, false
			}
			if id, driver := s.identify(claim); driver != "" {
				found[id] = driver
			}
		}
	}
	return found, true
}

// leftAttached returns the driver of each volume that is attached to a node, even without a pod, by the volume's
// identity.
func (s *storage) leftAttached(node string) map[string]string {
	found := map[string]string{}
	for _, a := range s.attachedTo[node] {
		if a.Spec.Attacher == "" || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		if v := s.volumes[*a.Spec.Source.PersistentVolumeName]; v != nil && v.Spec.CSI != nil {
			found[attachmentID(a.Spec.Attacher, v.Spec.CSI.VolumeHandle)] = a.Spec.Attacher
		}
	}
	return found
}

// claimInUse returns a claim of the pod that only one pod may use and that another pod on a known node uses, or "".
func (w *world) claimInUse() string {
	q := w.question
	for _, key := range q.claims.exclusive {
		for uid, p := range q.cluster.storage.users[key] {
			if _, known := q.cluster.labelsOf(p.node); known && uid != UID(q.pod) {
				return key.Name
			}
		}
		for _, p := range w.coming {
			if p.namespace == key.Namespace && slices.Contains(p.claims, claimRef{name: key.Name}) {
				return key.Name
			}
		}
	}
	return ""
}

// zoneLabel is a label of a volume with its zones or regions.
type zoneLabel struct {
	key    string
	values []string
}

// zoneKeys returns the labels that bind a volume to zones and regions, each with the corresponding label of newer
// nodes.
func zoneKeys() [4][2]string {
	return [4][2]string{
		{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone},
		{corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
		{corev1.LabelTopologyZone, corev1.LabelTopologyZone},
		{corev1.LabelTopologyRegion, corev1.LabelTopologyRegion},
	}
}

// zoneLabels reads the labels of a volume. Several zones are joined by two underscores; a label with an empty zone has
// no effect.
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

// inZones reports whether a node is in the zones of a volume. A node without any such label is everywhere.
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
