package policy

import (
	_ "embed"
	"fmt"
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
	ThresholdPriority          *int32 `json:"thresholdPriority" max:"2000000000"`
	ThresholdPriorityClassName string `json:"thresholdPriorityClassName"`
	NodeFit                    bool   `json:"nodeFit"`
}

//go:embed older.yaml
var olderYAML []byte

// olderParams are the params of one strategy in older.yaml, with the argument for each path.
type olderParams map[string]string

// below returns the keys of the map at a path, which ends in a dot unless it is empty.
func (p olderParams) below(path string) []string {
	var keys []string
	for _, name := range strict.Names(p) {
		if rest, inside := strings.CutPrefix(name, path); inside {
			key, _, _ := strings.Cut(rest, ".")
			keys = append(keys, key)
		}
	}
	return slices.Compact(keys)
}

// older converts a file of [OlderVersion] to one of [DeschedulerVersion]. Strategies that protect the same pods share a
// profile.
func (r *reader) older() Policy {
	var doc olderFile
	r.into(r.root, &doc, "")
	p := Default()
	p.NodeSelector = doc.NodeSelector
	p.Limits.PerNode, p.Limits.PerNamespace = doc.MaxNoOfPodsToEvictPerNode, doc.MaxNoOfPodsToEvictPerNamespace
	p.Limits.Total = doc.MaxNoOfPodsToEvictTotal
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
	var profiles []fileProfile
	for _, e := range strict.Entries(doc.Strategies) {
		profiles = r.olderStrategy(profiles, doc, e, params)
	}
	for i := range profiles {
		set := profiles[i].Plugins
		if profiles[i].Name = DefaultProfile; len(profiles) > 1 {
			profiles[i].Name = append(set.Deschedule.Enabled, set.Balance.Enabled...)[0]
		}
	}
	p.Profiles = r.profiles(profiles, nil)
	return p
}

// olderStrategy adds one strategy to the profile that protects the same pods, or to a new one.
func (r *reader) olderStrategy(profiles []fileProfile, doc olderFile, e strict.Entry, all map[string]olderParams) []fileProfile {
	at := strict.Place{Path: "strategies[" + e.Key + "]", Line: e.Line}
	var written olderStrategy
	r.Decode(e.Value, reflect.ValueOf(&written).Elem(), at)
	strategy, known := r.strategy(e.Key)
	params, converts := all[e.Key]
	switch {
	case !written.Enabled && converts && !known && !r.Unread(at.Path):
		return profiles // it is off
	case !known:
		r.wrong(at.Path, e.Key, "is not a plugin of this version of Rehome", r.suggest(e.Key))
		return profiles
	case !converts:
		r.wrong(at.Path, e.Key, "is no strategy of "+OlderVersion, "write apiVersion: "+DeschedulerVersion+", with a profile")
		return profiles
	}
	at = at.Field("params", e.Line)
	args, evictor := r.olderArguments(doc, params, written.Params, at)
	i := slices.IndexFunc(profiles, func(w fileProfile) bool { return reflect.DeepEqual(w.PluginConfig[0].Args, evictor) })
	path := fmt.Sprintf("profiles[%d]", i)
	alone := fileProfile{PluginConfig: []pluginConfig{{EvictorName, evictor}}}
	w := &alone
	switch {
	case !written.Enabled: // it is read alone, to check it
		path = at.Path
	case i < 0:
		path = fmt.Sprintf("profiles[%d]", len(profiles))
		profiles = append(profiles, alone)
		w = &profiles[len(profiles)-1]
	default:
		w = &profiles[i]
	}
	r.origins[path+".pluginConfig[0].args.priorityThreshold"] = origin{at.Path + ".thresholdPriority", true}
	r.origins[path+".pluginConfig[0].args.priorityThreshold.name"] = origin{at.Path + ".thresholdPriorityClassName", true}
	args.origins(fmt.Sprintf("%s.pluginConfig[%d].args", path, len(w.PluginConfig)), at.Path)
	w.PluginConfig = append(w.PluginConfig, pluginConfig{e.Key, args.args})
	if !written.Enabled {
		r.profile(alone, path)
		return profiles
	}
	set := &w.Plugins.Deschedule
	if strategy.Point == Balance {
		set = &w.Plugins.Balance
	}
	set.Enabled = append(set.Enabled, e.Key)
	return profiles
}

// olderArguments reads the params of a strategy. evictor are the resulting arguments of DefaultEvictor.
func (r *reader) olderArguments(
	doc olderFile, params olderParams, written *yaml.Node, at strict.Place,
) (args olderArguments, evictor *yaml.Node) {
	args = olderArguments{reader: r, params: params, args: newMap(), evictor: newMap(), from: map[string]string{}}
	for _, path := range strict.Names(params) {
		args.from[params[path]] = path
	}
	if written != nil {
		args.read("", written, at)
	}
	var common olderEvictor
	r.Decode(args.evictor, reflect.ValueOf(&common).Elem(), at)
	evictor, err := strict.Encode(EvictorArgs{
		PriorityThreshold:     PriorityThreshold{Value: common.ThresholdPriority, Name: common.ThresholdPriorityClassName},
		NodeFit:               common.NodeFit,
		EvictLocalStoragePods: doc.EvictLocalStoragePods, EvictDaemonSetPods: doc.EvictDaemonSetPods,
		EvictSystemCriticalPods: doc.EvictSystemCriticalPods, EvictFailedBarePods: doc.EvictFailedBarePods,
		IgnorePVCPods: doc.IgnorePVCPods,
	}, EvictorArgs{})
	r.check(at.Path, err)
	return args, evictor
}

// olderArguments are the params of a strategy, assembled as the arguments of the strategy and of DefaultEvictor.
type olderArguments struct {
	*reader
	params        olderParams
	args, evictor *yaml.Node
	from          map[string]string // argument: its path below params
}

func newMap() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

// read reads the params at a path, which ends in a dot unless it is empty.
func (a *olderArguments) read(path string, n *yaml.Node, at strict.Place) {
	if !strict.IsNull(n) && n.Kind != yaml.MappingNode {
		a.WrongType(n, reflect.TypeFor[olderEvictor](), at)
	}
	keys := a.params.below(path)
	common := strict.Names(strict.FieldsOf(reflect.ValueOf(olderEvictor{})))
	if path == "" {
		keys = slices.Sorted(slices.Values(append(keys, common...)))
	}
	for _, e := range strict.Entries(n) {
		argument, inside := a.params[path+e.Key], at.Field(e.Key, e.Line)
		to, value := a.args, e.Value
		switch {
		case path == "" && slices.Contains(common, e.Key):
			to, argument = a.evictor, e.Key
		case argument == "" && slices.Contains(keys, e.Key):
			a.read(path+e.Key+".", e.Value, inside)
			continue
		case argument == "":
			a.Report(inside, "unknown field", "", strict.Suggest(e.Key, keys))
			continue
		case e.Key == "includeSoftConstraints":
			soft := false
			a.Decode(e.Value, reflect.ValueOf(&soft).Elem(), inside)
			if !soft {
				continue
			}
			value = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{textNode("DoNotSchedule"), textNode("ScheduleAnyway")}}
		}
		if before, _ := strict.Child(to, argument); before != nil {
			a.Report(inside, "says the same as "+a.from[argument], "", "keep one")
			continue
		}
		a.from[argument] = path + e.Key
		key := textNode(argument)
		key.Line = e.Line
		to.Content = append(to.Content, key, value)
	}
}

func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// origins records the origins of the arguments, which are read at the path args.
func (a *olderArguments) origins(args, params string) {
	a.reader.origins[args] = origin{path: params}
	for argument, path := range a.from {
		a.reader.origins[args+"."+argument] = origin{path: params + "." + path}
	}
}
