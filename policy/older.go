package policy

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/policy/strict"
)

// OlderVersion is the peer's version before [PeerVersion]: a map of strategies, each with params. It is read as if it were
// the newer one.
const OlderVersion = "descheduler/v1alpha1"

// olderFile is the policy file of OlderVersion as it is written.
type olderFile struct {
	APIVersion   string `json:"apiVersion"`
	Kind         string `json:"kind"`
	NodeSelector string `json:"nodeSelector"`

	EvictLocalStoragePods   bool `json:"evictLocalStoragePods"`
	EvictDaemonSetPods      bool `json:"evictDaemonSetPods"`
	EvictSystemCriticalPods bool `json:"evictSystemCriticalPods"`
	EvictFailedBarePods     bool `json:"evictFailedBarePods"`
	IgnorePVCPods           bool `json:"ignorePvcPods"`

	MaxNoOfPodsToEvictPerNode      *uint `json:"maxNoOfPodsToEvictPerNode"`
	MaxNoOfPodsToEvictPerNamespace *uint `json:"maxNoOfPodsToEvictPerNamespace"`
	MaxNoOfPodsToEvictTotal        *uint `json:"maxNoOfPodsToEvictTotal"`

	Strategies *yaml.Node `json:"strategies"` // a map, read in its order
}

// olderStrategy is one strategy as it is written.
type olderStrategy struct {
	Enabled bool       `json:"enabled"`
	Weight  int        `json:"weight"` // without effect, as in the peer
	Params  *yaml.Node `json:"params"`
}

// olderEvictor are the params that every strategy has, and that the newer version says in DefaultEvictor.
type olderEvictor struct {
	ThresholdPriority          *int32 `json:"thresholdPriority"`
	ThresholdPriorityClassName string `json:"thresholdPriorityClassName"`
	NodeFit                    bool   `json:"nodeFit"`
}

// olderParams says where the params of one strategy go: each key, below params or below one block in it, becomes the
// argument that it is mapped to.
type olderParams struct {
	direct map[string]string
	block  string
	inside map[string]string
	// soft is a key that is true or false, of which true becomes softConstraints.
	soft string
}

// softConstraints is the argument that says which constraints count, and what it says when all of them do.
const softConstraints = "constraints"

func allConstraints(line int) *yaml.Node {
	word := func(value string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: line}
	}
	return &yaml.Node{Kind: yaml.SequenceNode, Line: line, Content: []*yaml.Node{word("DoNotSchedule"), word("ScheduleAnyway")}}
}

// paramsOf are the params of a strategy. ok is false for one that was not there yet in OlderVersion.
func paramsOf(strategy string) (p olderParams, ok bool) {
	same := func(keys ...string) map[string]string {
		m := map[string]string{}
		for _, key := range keys {
			m[key] = key
		}
		return m
	}
	const ns, sel, utilization = "namespaces", "labelSelector", "nodeResourceUtilizationThresholds"
	evictable := map[string]string{ns: "evictableNamespaces"}
	switch strategy {
	case "RemovePodsViolatingNodeTaints":
		return olderParams{direct: same(ns, sel, "includePreferNoSchedule", "excludedTaints", "includedTaints")}, true
	case "RemovePodsHavingTooManyRestarts":
		return olderParams{direct: same(ns, sel), block: "podsHavingTooManyRestarts",
			inside: same("podRestartThreshold", "includingInitContainers", "states")}, true
	case "PodLifeTime":
		inside := same("maxPodLifeTimeSeconds", "states", "includingInitContainers")
		inside["podStatusPhases"] = "states"
		return olderParams{direct: same(ns, sel), block: "podLifeTime", inside: inside}, true
	case "RemoveFailedPods":
		return olderParams{direct: same(ns, sel), block: "failedPods",
			inside: same("excludeOwnerKinds", "minPodLifetimeSeconds", "reasons", "includingInitContainers")}, true
	case "RemoveDuplicates":
		return olderParams{direct: same(ns), block: "removeDuplicates", inside: same("excludeOwnerKinds")}, true
	case "RemovePodsViolatingInterPodAntiAffinity":
		return olderParams{direct: same(ns, sel)}, true
	case "RemovePodsViolatingNodeAffinity":
		return olderParams{direct: same(ns, sel, "nodeAffinityType")}, true
	case "RemovePodsViolatingTopologySpreadConstraint":
		return olderParams{direct: same(ns, sel), soft: "includeSoftConstraints"}, true
	case "LowNodeUtilization":
		return olderParams{direct: evictable, block: utilization,
			inside: same("thresholds", "targetThresholds", "numberOfNodes", "useDeviationThresholds")}, true
	case "HighNodeUtilization":
		return olderParams{direct: evictable, block: utilization, inside: same("thresholds", "numberOfNodes")}, true
	}
	return olderParams{}, false
}

// path is where an argument stands in the file, below params.
func (p olderParams) path(argument string) string {
	for key, to := range p.inside {
		if to == argument && key == argument {
			return p.block + "." + argument
		}
	}
	return argument
}

// older reads a file of OlderVersion.
func (r *reader) older() Policy {
	var doc olderFile
	r.into(r.root, &doc, "")
	top := file{
		NodeSelector: doc.NodeSelector, Rate: DefaultRate(), Deltas: DeltasNeeded,
		MaxNoOfPodsToEvictPerNode:      doc.MaxNoOfPodsToEvictPerNode,
		MaxNoOfPodsToEvictPerNamespace: doc.MaxNoOfPodsToEvictPerNamespace,
		MaxNoOfPodsToEvictTotal:        doc.MaxNoOfPodsToEvictTotal,
	}
	r.check("", top.validate())
	p := Policy{
		NodeSelector: doc.NodeSelector, Rate: top.Rate, Limits: top.limits(), Brakes: top.Brakes.brakes(), Deltas: top.Deltas,
	}
	if doc.Strategies == nil {
		return p
	}
	if doc.Strategies.Kind == yaml.AliasNode {
		doc.Strategies = doc.Strategies.Alias
	}
	at := strict.Place{Path: "strategies", Line: strict.LineOf(r.root, "strategies", r.root.Line)}
	if doc.Strategies.Kind != yaml.MappingNode {
		r.WrongType(doc.Strategies, reflect.TypeFor[map[string]olderStrategy](), at)
		return p
	}
	for _, e := range r.Entries(doc.Strategies, at) {
		r.olderStrategy(&p, doc, e)
	}
	for _, profile := range p.Profiles {
		descheduleFirst(profile.Strategies)
	}
	nameProfiles(p.Profiles)
	return p
}

// descheduleFirst puts strategies in the order that a newer file has: by their extension points, then as they were written.
func descheduleFirst(strategies []Enabled) {
	slices.SortStableFunc(strategies, func(a, b Enabled) int {
		return cmp.Compare(b.Point, a.Point) // deschedule comes after balance in the alphabet
	})
}

// olderStrategy adds one strategy to the profile of p that protects the same pods as its params say, or to a new one.
func (r *reader) olderStrategy(p *Policy, doc olderFile, e strict.Entry) {
	at := strict.Place{Path: "strategies[" + e.Key + "]", Line: e.Line}
	var written olderStrategy
	r.Decode(e.Value, reflect.ValueOf(&written).Elem(), at)
	strategy, known := r.strategy(e.Key)
	where, converts := paramsOf(e.Key)
	switch {
	case !written.Enabled && converts && !known && !r.unread(at.Path):
		return // asks for nothing
	case !known:
		r.check(at.Path, &FieldError{Value: e.Key, Reason: "is not a plugin of this version of Rehome", Right: r.suggest(e.Key)})
		return
	case !converts:
		r.check(at.Path, &FieldError{Value: e.Key, Reason: "is no strategy of " + OlderVersion,
			Right: "write apiVersion: " + PeerVersion + ", with a profile"})
		return
	}
	common, args := r.olderArguments(strategy, where, written.Params, at.Field("params", e.Line))
	evictor, err := NewEvictor(EvictorArgs{
		PriorityThreshold:     PriorityThreshold{Value: common.ThresholdPriority, Name: common.ThresholdPriorityClassName},
		NodeFit:               common.NodeFit,
		EvictLocalStoragePods: doc.EvictLocalStoragePods, EvictDaemonSetPods: doc.EvictDaemonSetPods,
		EvictSystemCriticalPods: doc.EvictSystemCriticalPods, EvictFailedBarePods: doc.EvictFailedBarePods,
		IgnorePVCPods: doc.IgnorePVCPods,
	})
	for _, wrong := range strict.FieldErrors(err) {
		r.check(olderField(at.Path+".params", wrong.Field), &FieldError{Value: wrong.Value, Reason: wrong.Reason, Right: wrong.Right})
	}
	if !written.Enabled {
		return
	}
	i := slices.IndexFunc(p.Profiles, func(q Profile) bool { return reflect.DeepEqual(q.Evictor, evictor) })
	if i < 0 {
		i = len(p.Profiles)
		p.Profiles = append(p.Profiles, Profile{Evictor: evictor})
	}
	p.Profiles[i].Strategies = append(p.Profiles[i].Strategies, Enabled{Strategy: strategy, Args: args})
}

// olderField is where OlderVersion says what is wrong with a field of DefaultEvictor.
func olderField(params, field string) string {
	switch field {
	case "priorityThreshold":
		return params + ".thresholdPriority"
	case "priorityThreshold.value":
		return params + ".thresholdPriority"
	case "priorityThreshold.name":
		return params + ".thresholdPriorityClassName"
	case "nodeFit":
		return params + ".nodeFit"
	}
	return field
}

// olderArguments reads the params of a strategy: those of DefaultEvictor, and its own in the shape of today.
func (r *reader) olderArguments(
	s Strategy, where olderParams, params *yaml.Node, at strict.Place,
) (common olderEvictor, args json.RawMessage) {
	own := &yaml.Node{Kind: yaml.MappingNode, Line: at.Line}
	evictor := &yaml.Node{Kind: yaml.MappingNode, Line: at.Line}
	came := map[string]string{} // argument: the path that it came from, below at
	if params != nil && params.Kind == yaml.AliasNode {
		params = params.Alias
	}
	switch {
	case params == nil || strict.IsNull(params):
	case params.Kind != yaml.MappingNode:
		r.WrongType(params, reflect.TypeFor[olderEvictor](), at)
	default:
		own.Line, evictor.Line = params.Line, params.Line
		evictorKeys := strict.Names(strict.FieldsOf(reflect.ValueOf(&common).Elem()))
		for _, e := range r.Entries(params, at) {
			switch {
			case slices.Contains(evictorKeys, e.Key):
				add(evictor, e, e.Key)
			case where.direct[e.Key] != "":
				came[where.direct[e.Key]] = e.Key
				add(own, e, where.direct[e.Key])
			case e.Key == where.block && where.block != "":
				r.olderBlock(own, where, e, at, came)
			case e.Key == where.soft && where.soft != "":
				r.olderSoft(own, e, at, came)
			default:
				all := append(append(strict.Names(where.direct), evictorKeys...), where.block, where.soft)
				r.Report(at.Field(e.Key, e.Line), "is no parameter of "+s.Name, "", strict.Suggest(e.Key, slices.DeleteFunc(all, isEmpty)))
			}
		}
	}
	r.Decode(evictor, reflect.ValueOf(&common).Elem(), at)
	return common, r.moved(s, where, own, at, came)
}

func isEmpty(s string) bool { return s == "" }

// olderSoft takes over whether soft constraints count as well.
func (r *reader) olderSoft(own *yaml.Node, e strict.Entry, at strict.Place, came map[string]string) {
	soft := false
	r.Decode(e.Value, reflect.ValueOf(&soft).Elem(), at.Field(e.Key, e.Line))
	if soft {
		came[softConstraints] = e.Key
		add(own, strict.Entry{Key: e.Key, Line: e.Line, Value: allConstraints(e.Line)}, softConstraints)
	}
}

// olderBlock takes over what stands in the block of a strategy, such as podLifeTime.
func (r *reader) olderBlock(own *yaml.Node, where olderParams, block strict.Entry, at strict.Place, came map[string]string) {
	at = at.Field(block.Key, block.Line)
	n := block.Value
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if strict.IsNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.WrongType(n, reflect.TypeFor[olderEvictor](), at)
		return
	}
	for _, e := range r.Entries(n, at) {
		to := where.inside[e.Key]
		switch {
		case to == "":
			r.Report(at.Field(e.Key, e.Line), "unknown field", "", strict.Suggest(e.Key, strict.Names(where.inside)))
		case came[to] != "":
			r.Report(at.Field(e.Key, e.Line), "says the same as "+came[to], "", "keep one")
		default:
			came[to] = block.Key + "." + e.Key
			add(own, e, to)
		}
	}
}

// add puts an entry into a map under another name.
func add(to *yaml.Node, e strict.Entry, name string) {
	to.Content = append(to.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: e.Line}, e.Value)
}

// moved reads arguments from a map that was put together from others. What is wrong is reported where it came from.
func (r *reader) moved(
	s Strategy, where olderParams, own *yaml.Node, at strict.Place, came map[string]string,
) json.RawMessage {
	inner := reader{known: r.known, root: own}
	args := inner.arguments(s, own, "")
	from := func(field string) string {
		name, rest := field, ""
		if i := strings.IndexAny(field, ".["); i >= 0 {
			name, rest = field[:i], field[i:]
		}
		if came[name] != "" {
			return strict.Join(at.Path, came[name]+rest)
		}
		return strict.Join(at.Path, where.path(name)+rest)
	}
	for _, p := range inner.Problems {
		p.Field = from(p.Field)
		r.Problems = append(r.Problems, p)
	}
	for _, p := range inner.found {
		if p.Field = from(p.Field); !r.unread(p.Field) {
			r.found = append(r.found, p)
		}
	}
	return args
}

// nameProfiles gives names to the profiles that came of strategies: the usual one to a single profile, and to each of
// several that of its first strategy.
func nameProfiles(profiles []Profile) {
	for i := range profiles {
		profiles[i].Name = DefaultProfile
		if len(profiles) > 1 {
			profiles[i].Name = profiles[i].Strategies[0].Name
		}
	}
}
