package policy

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/policy/strict"
)

// olderFile is a file of [OlderVersion].
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

// Validate checks the values; each error is a *[FieldError].
func (f olderFile) Validate() error { return validateNodeSelector(f.NodeSelector) }

// olderStrategy is one strategy in the map.
type olderStrategy struct {
	Enabled bool       `json:"enabled"`
	Weight  int        `json:"weight"` // without effect, as in the descheduler
	Params  *yaml.Node `json:"params"`
}

// olderEvictor are the params that every strategy has. The newer version has them in DefaultEvictor.
type olderEvictor struct {
	ThresholdPriority          *int32 `json:"thresholdPriority"`
	ThresholdPriorityClassName string `json:"thresholdPriorityClassName"`
	NodeFit                    bool   `json:"nodeFit"`
}

//go:embed older.yaml
var olderYAML []byte

// olderParams are the params of one strategy in older.yaml.
type olderParams struct {
	Params  []string          `json:"params"`
	Block   string            `json:"block"`
	Inside  []string          `json:"inside"`
	Renamed map[string]string `json:"renamed"`
	Soft    string            `json:"soft"`
}

// argument is the argument that a key became, which is at the path below params. Empty: none.
func (p olderParams) argument(path, key string, keys []string) string {
	if slices.Contains(keys, key) {
		return key
	}
	return p.Renamed[path]
}

// older reads a file of [OlderVersion].
func (r *reader) older() Policy {
	var doc olderFile
	r.into(r.root, &doc, "")
	p := Default()
	p.NodeSelector = doc.NodeSelector
	p.Limits = Limits{PerNode: doc.MaxNoOfPodsToEvictPerNode, PerNamespace: doc.MaxNoOfPodsToEvictPerNamespace,
		Total: doc.MaxNoOfPodsToEvictTotal}
	if doc.Strategies == nil {
		return p
	}
	at := strict.Place{Path: "strategies", Line: strict.LineOf(r.root, "strategies", r.root.Line)}
	if doc.Strategies.Kind != yaml.MappingNode {
		r.WrongType(doc.Strategies, reflect.TypeFor[map[string]olderStrategy](), at)
		return p
	}
	var params map[string]olderParams
	strict.Embedded(olderYAML, &params)
	for _, e := range strict.Entries(doc.Strategies) {
		r.olderStrategy(&p, doc, e, params)
	}
	for i := range p.Profiles {
		profile := &p.Profiles[i]
		slices.SortStableFunc(profile.Strategies, func(a, b Enabled) int {
			return cmp.Compare(b.Point, a.Point) // deschedule first, as in a newer file
		})
		profile.Name = DefaultProfile
		if len(p.Profiles) > 1 {
			profile.Name = profile.Strategies[0].Name
		}
	}
	return p
}

// olderStrategy adds one strategy to the profile of p that protects the same pods, or to a new one.
func (r *reader) olderStrategy(p *Policy, doc olderFile, e strict.Entry, all map[string]olderParams) {
	at := strict.Place{Path: "strategies[" + e.Key + "]", Line: e.Line}
	var written olderStrategy
	r.Decode(e.Value, reflect.ValueOf(&written).Elem(), at)
	strategy, known := r.strategy(e.Key)
	params, converts := all[e.Key]
	switch {
	case !written.Enabled && converts && !known && !r.Unread(at.Path):
		return // it is off
	case !known:
		r.wrong(at.Path, e.Key, "is not a plugin of this version of Rehome", r.suggest(e.Key))
		return
	case !converts:
		r.wrong(at.Path, e.Key, "is no strategy of "+OlderVersion, "write apiVersion: "+DeschedulerVersion+", with a profile")
		return
	}
	common, args := r.olderArguments(strategy, params, written.Params, at.Field("params", e.Line))
	evictor, err := NewEvictor(EvictorArgs{
		PriorityThreshold:     PriorityThreshold{Value: common.ThresholdPriority, Name: common.ThresholdPriorityClassName},
		NodeFit:               common.NodeFit,
		EvictLocalStoragePods: doc.EvictLocalStoragePods, EvictDaemonSetPods: doc.EvictDaemonSetPods,
		EvictSystemCriticalPods: doc.EvictSystemCriticalPods, EvictFailedBarePods: doc.EvictFailedBarePods,
		IgnorePVCPods: doc.IgnorePVCPods,
	})
	for _, wrong := range strict.FieldErrors(err) {
		r.wrong(olderField(at.Path+".params", wrong.Field), wrong.Value, wrong.Reason, wrong.Right)
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

// olderField is the path, in params, of a field of DefaultEvictor.
func olderField(params, field string) string {
	switch strings.TrimSuffix(field, ".") {
	case "priorityThreshold", "priorityThreshold.value":
		return params + ".thresholdPriority"
	case "priorityThreshold.name":
		return params + ".thresholdPriorityClassName"
	case "nodeFit":
		return params + ".nodeFit"
	}
	return field
}

// moved is a map of arguments that were put together from others.
type moved struct {
	yaml.Node
	from map[string]string // argument: the path that it came from, below params
}

// add puts an entry of params, at the path from, under the name of an argument.
func (m *moved) add(argument string, e strict.Entry, from string) {
	m.from[argument] = from
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: argument, Line: e.Line}, e.Value)
}

// olderArguments reads the params of a strategy: for DefaultEvictor, and as its own arguments.
func (r *reader) olderArguments(
	s Strategy, where olderParams, params *yaml.Node, at strict.Place,
) (common olderEvictor, args json.RawMessage) {
	newMap := func(line int) moved {
		return moved{yaml.Node{Kind: yaml.MappingNode, Line: line}, map[string]string{}}
	}
	own, evictor := newMap(at.Line), newMap(at.Line)
	switch {
	case params == nil || strict.IsNull(params):
	case params.Kind != yaml.MappingNode:
		r.WrongType(params, reflect.TypeFor[olderEvictor](), at)
	default:
		own, evictor = newMap(params.Line), newMap(params.Line)
		evictorKeys := strict.Names(strict.FieldsOf(reflect.ValueOf(&common).Elem()))
		for _, e := range strict.Entries(params) {
			switch {
			case slices.Contains(evictorKeys, e.Key):
				evictor.add(e.Key, e, e.Key)
			case where.argument(e.Key, e.Key, where.Params) != "":
				own.add(where.argument(e.Key, e.Key, where.Params), e, e.Key)
			case e.Key == where.Block && where.Block != "":
				r.olderBlock(&own, where, e, at.Field(e.Key, e.Line))
			case e.Key == where.Soft && where.Soft != "":
				soft := false
				r.Decode(e.Value, reflect.ValueOf(&soft).Elem(), at.Field(e.Key, e.Line))
				if both, err := strict.FromJSON([]byte(`["DoNotSchedule", "ScheduleAnyway"]`)); soft && err == nil {
					both.Line = e.Line
					own.add("constraints", strict.Entry{Line: e.Line, Value: both}, e.Key)
				}
			default:
				all := append(slices.Concat(where.Params, strict.Names(where.Renamed), evictorKeys), where.Block, where.Soft)
				all = slices.DeleteFunc(slices.Sorted(slices.Values(all)), func(name string) bool { return name == "" })
				r.Report(at.Field(e.Key, e.Line), "is no parameter of "+s.Name, "", strict.Suggest(e.Key, all))
			}
		}
	}
	r.Decode(&evictor.Node, reflect.ValueOf(&common).Elem(), at)
	return common, r.movedArguments(s, where, own, at)
}

// olderBlock takes over the block of a strategy, such as podLifeTime.
func (r *reader) olderBlock(own *moved, where olderParams, block strict.Entry, at strict.Place) {
	if strict.IsNull(block.Value) {
		return
	}
	if block.Value.Kind != yaml.MappingNode {
		r.WrongType(block.Value, reflect.TypeFor[olderEvictor](), at)
		return
	}
	for _, e := range strict.Entries(block.Value) {
		to := where.argument(block.Key+"."+e.Key, e.Key, where.Inside)
		switch {
		case to == "":
			r.Report(at.Field(e.Key, e.Line), "unknown field", "", strict.Suggest(e.Key, where.Inside))
		case own.from[to] != "":
			r.Report(at.Field(e.Key, e.Line), "says the same as "+own.from[to], "", "keep one")
		default:
			own.add(to, e, block.Key+"."+e.Key)
		}
	}
}

// movedArguments reads arguments, and reports problems at the paths that they came from.
func (r *reader) movedArguments(s Strategy, where olderParams, own moved, at strict.Place) json.RawMessage {
	inner := reader{known: r.known, root: &own.Node}
	args := inner.arguments(s, &own.Node, "")
	from := func(field string) string {
		name, rest := field, ""
		if i := strings.IndexAny(field, ".["); i >= 0 {
			name, rest = field[:i], field[i:]
		}
		switch {
		case own.from[name] != "":
			name = own.from[name]
		case slices.Contains(where.Inside, name):
			name = where.Block + "." + name
		}
		return strict.Join(at.Path, name+rest)
	}
	for _, p := range inner.Unreadable {
		p.Field = from(p.Field)
		r.Unreadable = append(r.Unreadable, p)
	}
	for _, p := range inner.Invalid {
		if p.Field = from(p.Field); !r.Unread(p.Field) {
			r.Invalid = append(r.Invalid, p)
		}
	}
	return args
}
