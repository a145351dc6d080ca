package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/policy/strict"
)

// EvictorName is the plugin with the protections. It is always enabled.
const EvictorName = "DefaultEvictor"

// DefaultProfile is the name of an unnamed profile that is the only one.
const DefaultProfile = "default"

// fileProfile is a profile in the file.
type fileProfile struct {
	// It distinguishes the intents of profiles; required if there are several.
	//
	//page:default `default`
	Name string `json:"name"`
	// The arguments of strategies and of DefaultEvictor.
	PluginConfig []pluginConfig `json:"pluginConfig"`
	// The enabled strategies by their extension points.
	Plugins plugins `json:"plugins"`
}

// plugins lists the enabled plugins. PreSort, Sort, and every list of disabled plugins have no effect, as in the
// descheduler.
type plugins struct {
	PreSort           pluginSet  `json:"presort"`
	Sort              pluginSet  `json:"sort"`
	Deschedule        pluginSet  `json:"deschedule"`
	Balance           pluginSet  `json:"balance"`
	Filter            evictorSet `json:"filter"`
	PreEvictionFilter evictorSet `json:"preevictionfilter"`
}

type pluginSet struct {
	// The enabled strategies of this extension point.
	Enabled  []string `json:"enabled"`
	Disabled []string `json:"disabled"`
}

// evictorSet is a set of an extension point that only DefaultEvictor has.
type evictorSet struct {
	// No other entry is allowed.
	//
	//page:default `DefaultEvictor`
	Enabled  []string `json:"enabled" enum:"DefaultEvictor"`
	Disabled []string `json:"disabled"`
}

// pluginConfig has the arguments of one plugin, which are read once its name is known.
type pluginConfig struct {
	// The strategy, or `DefaultEvictor`, that the arguments are for.
	Name string `json:"name" required:"name a plugin"`
	// Its arguments.
	//
	//page:type object
	Args *yaml.Node `json:"args"`
}

// profiles reads all profiles. Their names identify answers, so each is unique, including the names of presets.
func (r *reader) profiles(written []fileProfile, presets []Preset) []Profile {
	var all []Profile
	lines := map[string]int{}
	for i, w := range written {
		path := fmt.Sprintf("profiles[%d]", i)
		if w.Name == "" && len(written) == 1 {
			w.Name = DefaultProfile
		}
		first, twice := lines[w.Name]
		switch {
		case slices.ContainsFunc(presets, func(p Preset) bool { return p.Profile == w.Name && w.Name != "" }):
			r.wrong(path+".name", w.Name, "is the name of the profile of a preset", "each profile needs a name of its own")
		case w.Name == "":
			r.wrong(path+".name", nil, "is missing", "of several profiles, each needs a name of its own")
		case twice:
			r.wrong(path+".name", w.Name, fmt.Sprintf("is the name of the profile in line %d", first),
				"each profile needs a name of its own")
		default:
			lines[w.Name] = strict.LineOf(r.root, path, 0)
		}
		all = append(all, r.profile(w, path))
	}
	return all
}

func (r *reader) profile(w fileProfile, path string) Profile {
	p := Profile{Name: w.Name}
	configs := r.configs(w.PluginConfig, path+".pluginConfig", &p.Evictor)
	path += ".plugins."
	p.Strategies = append(
		r.enabled(Deschedule, w.Plugins.Deschedule.Enabled, configs, path+"deschedule.enabled"),
		r.enabled(Balance, w.Plugins.Balance.Enabled, configs, path+"balance.enabled")...)
	return p
}

// configs are the arguments of strategies by name. whole is false if some could not be read, so that a missing one may
// be in the file after all.
type configs struct {
	args  map[string]json.RawMessage
	paths map[string]string // of the args
	whole bool
}

// configs reads the arguments of every plugin, enabled or not.
func (r *reader) configs(written []pluginConfig, path string, evictor *Evictor) configs {
	read := configs{args: map[string]json.RawMessage{}, paths: map[string]string{}, whole: !r.Unread(path)}
	lines := map[string]int{}
	for i, c := range written {
		at := fmt.Sprintf("%s[%d]", path, i)
		if first, twice := lines[c.Name]; twice && c.Name != "" {
			r.wrong(at+".name", c.Name, fmt.Sprintf("is configured twice, first in line %d", first), "keep one")
		}
		lines[c.Name] = strict.LineOf(r.root, at, 0)
		strategy, isStrategy := r.strategy(c.Name)
		switch {
		case c.Name == EvictorName:
			*evictor = r.evictor(c.Args, at+".args")
		case isStrategy:
			read.args[c.Name] = r.arguments(strategy, c.Args, at+".args")
			read.paths[c.Name] = at + ".args"
		case c.Name == "": // it was reported
		case r.Unread("functions"): // unreadable functions may describe it
		default:
			r.wrong(at+".name", c.Name, "is not a plugin of this version of Rehome", r.suggest(c.Name))
		}
	}
	return read
}

// evictor reads the arguments of DefaultEvictor.
func (r *reader) evictor(n *yaml.Node, path string) Evictor {
	var args EvictorArgs
	if n != nil {
		r.into(n, &args, path)
	}
	evictor, err := NewEvictor(args)
	if err != nil {
		return Evictor{} // into reported it
	}
	return evictor
}

// enabled returns the strategies that are enabled at one extension point, in order, each once.
func (r *reader) enabled(point Point, named []string, configs configs, path string) []Enabled {
	var all []Enabled
	for i, name := range named {
		at := fmt.Sprintf("%s[%d]", path, i)
		strategy, known := r.strategy(name)
		args, configured := configs.args[name]
		switch {
		case name == EvictorName:
			r.wrong(at, name, "is not a strategy", "it is always on: remove it here")
		case !known && r.Unread("functions"):
			// unreadable functions may describe it
		case !known:
			r.wrong(at, name, "is not a plugin of this version of Rehome", r.suggest(name))
		case strategy.Point != point && strategy.Point != anyPoint:
			r.wrong(at, name, fmt.Sprintf("cannot be enabled under %s", point), fmt.Sprintf("enable it under %s", strategy.Point))
		case !configured && !configs.whole:
		case !configured:
			r.wrong(at, name, "is enabled without an entry in pluginConfig", fmt.Sprintf("add the entry {name: %s}", name))
		case !slices.ContainsFunc(all, func(e Enabled) bool { return e.Name == name }):
			all = append(all, Enabled{Strategy: strategy, Args: args})
			r.measurable(all[len(all)-1], configs.paths[name])
		}
	}
	return all
}

func (r *reader) strategy(name string) (Strategy, bool) {
	return first(r.known, func(s Strategy) bool { return s.Name == name })
}

// suggest names the plugin that was probably meant, or all.
func (r *reader) suggest(name string) string {
	all := []string{EvictorName}
	for _, s := range r.known {
		all = append(all, s.Name)
	}
	slices.Sort(all)
	return strict.Suggest(name, all)
}
