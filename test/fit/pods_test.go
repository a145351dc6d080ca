package fit_test

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// blankPod returns a pod that goes everywhere.
func (s *scene) blankPod() *corev1.Pod {
	labels := map[string]string{"app": pick(s.judge, "web", "db", "cache"), "tier": pick(s.judge, "front", "back")}
	if s.chance(0.5) {
		labels["revision"] = strconv.Itoa(s.upTo(1))
	}
	p := plainPod(pick(s.judge, namespaces()...), "")
	p.Labels = labels
	return p
}

// existingPod returns a pod on a random node, with what matters to others.
func (s *scene) existingPod(i int) corev1.Pod {
	p := s.blankPod()
	p.Name = fmt.Sprintf("existing-%d-%d", s.number, i)
	p.Spec.NodeName = pick(s.judge, s.nodes...)
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	s.addResources(p)
	if s.chance(0.45) {
		s.addPorts(p)
	}
	if s.chance(0.25) {
		s.addAntiAffinity(p)
	}
	if s.chance(0.4) {
		s.addDisk(p)
	}
	if s.chance(0.3) {
		s.addClaim(p, fmt.Sprintf("bound-%d", s.upTo(3)))
	}
	switch s.upTo(9) {
	case 0:
		p.Labels[terminatingLabel] = "true"
	case 1:
		p.Labels[endedLabel] = "true"
	}
	return *p
}

// nominatedPod returns one that the scheduler has made room for. A gate keeps it from being scheduled itself.
func (s *scene) nominatedPod(i int) corev1.Pod {
	p := s.existingPod(100 + i)
	p.Spec.NodeName, p.Spec.Volumes = "", nil
	delete(p.Labels, terminatingLabel)
	delete(p.Labels, endedLabel)
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test.rehome.dev/wait"}}
	p.Status.NominatedNodeName = pick(s.judge, s.nodes...)
	return p
}

// candidate returns a pod to ask about: pinned to a node or not, with one to three wishes.
func (s *scene) candidate(waiting bool) *corev1.Pod {
	p := s.blankPod()
	if s.chance(0.7) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: pick(s.judge, "x", "y"),
		})
	}
	if s.chance(0.7) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: "flaky", Operator: corev1.TolerationOpExists,
			Effect: pick(s.judge, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
		})
	}
	if s.chance(0.3) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists,
		})
	}
	if waiting {
		s.addClaim(p, "waiting-"+pick(s.judge, waitingClasses()...))
	} else {
		wishes := s.wishes()
		for range 1 + s.upTo(2) {
			wishes[s.random.IntN(len(wishes))](p)
		}
	}
	if s.chance(0.5) {
		pin(p, pick(s.judge, s.nodes...))
	}
	return p
}

func (s *scene) wishes() []func(*corev1.Pod) {
	return []func(*corev1.Pod){
		s.addResources, s.addResources, s.addInitContainers, s.addPodLevel, s.addOverhead, s.addDevices,
		s.addNodeSelector, s.addNodeAffinity, s.addPorts, s.addPorts,
		s.addSpread, s.addSpread, s.addSpread, s.addAffinity, s.addAffinity, s.addAntiAffinity, s.addAntiAffinity,
		s.addDisk, s.addDisk, s.addBoundClaim, s.addBoundClaim, s.addUnusableClaim, s.addFeature,
	}
}

// pin adds to all terms of the node affinity that they want this node.
func pin(p *corev1.Pod, node string) {
	selector := required(p)
	if len(selector.NodeSelectorTerms) == 0 {
		selector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range selector.NodeSelectorTerms {
		t := &selector.NodeSelectorTerms[i]
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		})
	}
}

func pinnedTo(p *corev1.Pod) string {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	for _, t := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, r := range t.MatchFields {
			if r.Operator == corev1.NodeSelectorOpIn {
				return r.Values[0]
			}
		}
	}
	return ""
}

func affinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func required(p *corev1.Pod) *corev1.NodeSelector {
	a := affinity(p)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func (s *scene) amounts() corev1.ResourceList {
	list := corev1.ResourceList{}
	if s.chance(0.8) {
		list[corev1.ResourceCPU] = quantity(fmt.Sprintf("%dm", 250*s.upTo(5)))
	}
	if s.chance(0.5) {
		list[corev1.ResourceMemory] = quantity(fmt.Sprintf("%dMi", 128*s.upTo(6)))
	}
	if s.chance(0.3) {
		list[corev1.ResourceEphemeralStorage] = quantity(fmt.Sprintf("%dMi", 128*s.upTo(6)))
	}
	return list
}

func (s *scene) addResources(p *corev1.Pod) {
	if p.Spec.Resources == nil {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: s.amounts()}
	}
}

func (s *scene) addInitContainers(p *corev1.Pod) {
	if p.Spec.Resources != nil {
		return // The API server wants the sum of them below what the pod asks for.
	}
	for i := range 1 + s.upTo(2) {
		c := corev1.Container{Name: fmt.Sprintf("init-%d-%d", len(p.Spec.InitContainers), i), Image: "none"}
		c.Resources.Requests = s.amounts()
		if s.chance(0.5) {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			if s.chance(0.3) {
				c.Ports = []corev1.ContainerPort{s.port()}
			}
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func (s *scene) addPodLevel(p *corev1.Pod) {
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	p.Spec.InitContainers = nil
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: quantity(fmt.Sprintf("%dm", 300+300*s.upTo(5))),
	}}
}

func (s *scene) addOverhead(p *corev1.Pod) { p.Spec.RuntimeClassName = new(heavyRuntime) }

func (s *scene) addDevices(p *corev1.Pod) {
	name, amount := pick(s.judge, device, device, rareDevice, "hugepages-2Mi"), quantity(strconv.Itoa(s.upTo(2)))
	list := corev1.ResourceList{name: amount}
	if name == "hugepages-2Mi" {
		list[name] = quantity(pick(s.judge, "4Mi", "16Mi"))
		list[corev1.ResourceMemory] = quantity("16Mi")
	}
	p.Spec.Resources = nil
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
}

func (s *scene) port() corev1.ContainerPort {
	number := int32(8000 + s.upTo(2))
	return corev1.ContainerPort{
		ContainerPort: number, HostPort: number, HostIP: pick(s.judge, "", "127.0.0.1", "127.0.0.2", "0.0.0.0"),
		Protocol: pick(s.judge, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
	}
}

func (s *scene) addPorts(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{s.port()}
}

func (s *scene) addNodeSelector(p *corev1.Pod) {
	key := pick(s.judge, "disk", zone)
	p.Spec.NodeSelector = map[string]string{key: pick(s.judge, map[string][]string{"disk": {"ssd", "hdd"}, zone: {"a", "b", "c"}}[key]...)}
}

func (s *scene) nodeRequirement() corev1.NodeSelectorRequirement {
	switch s.upTo(5) {
	case 0:
		return corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd", "nvme"}}
	case 1:
		return corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"ssd"}}
	case 2:
		return corev1.NodeSelectorRequirement{Key: zone, Operator: corev1.NodeSelectorOpExists}
	case 3:
		return corev1.NodeSelectorRequirement{Key: "size", Operator: corev1.NodeSelectorOpDoesNotExist}
	case 4:
		return corev1.NodeSelectorRequirement{Key: "size", Operator: corev1.NodeSelectorOpGt, Values: []string{"2"}}
	}
	return corev1.NodeSelectorRequirement{Key: "size", Operator: corev1.NodeSelectorOpLt, Values: []string{"3"}}
}

func (s *scene) addNodeAffinity(p *corev1.Pod) {
	selector := required(p)
	for range 1 + s.upTo(1) {
		var t corev1.NodeSelectorTerm
		for range 1 + s.upTo(1) {
			t.MatchExpressions = append(t.MatchExpressions, s.nodeRequirement())
		}
		if s.chance(0.2) {
			t.MatchFields = []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{pick(s.judge, s.nodes...)},
			}}
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, t)
	}
}

// selector returns a random selector of pods; nil, of all and of none are among them.
func (s *scene) selector() *metav1.LabelSelector {
	switch s.upTo(9) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2, 3:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}},
		}}
	case 4:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "revision", Operator: metav1.LabelSelectorOpExists},
		}}
	}
	chosen := &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(s.judge, "web", "db", "cache")}}
	if s.chance(0.3) {
		chosen.MatchLabels["tier"] = pick(s.judge, "front", "back")
	}
	return chosen
}

func (s *scene) topology() string { return pick(s.judge, zone, zone, hostname, region, "disk") }

func (s *scene) addSpread(p *corev1.Pod) {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: int32(1 + s.upTo(1)), TopologyKey: s.topology(), LabelSelector: s.selector(),
		WhenUnsatisfiable: corev1.DoNotSchedule,
	}
	for _, other := range p.Spec.TopologySpreadConstraints {
		if other.TopologyKey == c.TopologyKey {
			return // The API server takes a key once.
		}
	}
	if s.chance(0.1) {
		c.WhenUnsatisfiable = corev1.ScheduleAnyway
	} else if s.chance(0.3) {
		c.MinDomains = new(int32(1 + s.upTo(3)))
	}
	policies := []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore}
	if s.chance(0.5) {
		c.NodeAffinityPolicy = new(pick(s.judge, policies...))
	}
	if s.chance(0.5) {
		c.NodeTaintsPolicy = new(pick(s.judge, policies...))
	}
	if c.LabelSelector != nil && s.chance(0.3) {
		c.MatchLabelKeys = []string{"revision"}
		c.LabelSelector.MatchExpressions = nil // The API server refuses a key in both.
	}
	p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
}

func (s *scene) term() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: s.topology(), LabelSelector: s.selector()}
	if s.chance(0.25) {
		t.Namespaces = []string{pick(s.judge, namespaces()...)}
	}
	switch s.upTo(7) {
	case 0:
		t.NamespaceSelector = &metav1.LabelSelector{}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(s.judge, "red", "blue")}}
	case 2:
		t.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
	}
	if t.LabelSelector != nil && s.chance(0.2) {
		t.LabelSelector.MatchExpressions = nil
		if s.chance(0.5) {
			t.MatchLabelKeys = []string{"revision"}
		} else {
			t.MismatchLabelKeys = []string{"revision"}
		}
	}
	return t
}

func (s *scene) addAffinity(p *corev1.Pod) {
	a := affinity(p)
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, s.term())
}

func (s *scene) addAntiAffinity(p *corev1.Pod) {
	a := affinity(p)
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, s.term())
}

func (s *scene) addDisk(p *corev1.Pod) {
	v := corev1.Volume{Name: fmt.Sprintf("disk-%d", len(p.Spec.Volumes))}
	id, readOnly := pick(s.judge, "x", "y"), s.chance(0.3)
	switch s.upTo(3) {
	case 0:
		v.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: id, ReadOnly: readOnly}
	case 1:
		v.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id, ReadOnly: readOnly}
	case 2:
		v.ISCSI = &corev1.ISCSIVolumeSource{TargetPortal: "127.0.0.1", IQN: "iqn.2026-01.dev.rehome:" + id, ReadOnly: readOnly}
	case 3:
		v.RBD = &corev1.RBDVolumeSource{CephMonitors: []string{id, "z" + strconv.Itoa(s.upTo(1))}, RBDImage: "image", ReadOnly: readOnly}
	}
	p.Spec.Volumes = append(p.Spec.Volumes, v)
}

func (s *scene) addClaim(p *corev1.Pod, name string) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: fmt.Sprintf("claim-%d", len(p.Spec.Volumes)),
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.name(name)},
		},
	})
}

func (s *scene) addBoundClaim(p *corev1.Pod) { s.addClaim(p, fmt.Sprintf("bound-%d", s.upTo(3))) }

func (s *scene) addUnusableClaim(p *corev1.Pod) {
	s.addClaim(p, pick(s.judge, "lost", "unbound", "missing"))
}

func (s *scene) addFeature(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action: corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{7},
		},
	}}
}
