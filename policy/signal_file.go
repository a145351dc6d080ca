package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// fileSignals is what a policy file says about signals.
type fileSignals struct {
	// DefaultDisabled are keys of [DefaultSignals] that do not hold.
	DefaultDisabled []string `json:"defaultDisabled,omitzero"`
	// ExtraEnabled are further signals.
	ExtraEnabled []Signal `json:"extraEnabled,omitzero"`
}

// signals is the table that holds: the zero value when the file changes nothing.
func (f fileSignals) signals() Signals {
	if len(f.DefaultDisabled) == 0 && len(f.ExtraEnabled) == 0 {
		return Signals{}
	}
	rows := make([]Signal, 0, len(DefaultSignals())+len(f.ExtraEnabled)) // not nil, which would be all defaults
	for _, s := range DefaultSignals() {
		if !slices.Contains(f.DefaultDisabled, s.Key) {
			rows = append(rows, s)
		}
	}
	return Signals{rows: append(rows, f.ExtraEnabled...), written: f}
}

func (f fileSignals) validate() error {
	var found Findings
	var keys []string
	for _, s := range DefaultSignals() {
		if !slices.Contains(keys, s.Key) {
			keys = append(keys, s.Key)
		}
	}
	for i, key := range f.DefaultDisabled {
		at := "defaultDisabled" + Item(i)
		switch {
		case !slices.Contains(keys, key):
			found.Add(at, key, "is not a key of the signals that are on by default", suggest(key, keys))
		case slices.Contains(f.DefaultDisabled[:i], key):
			found.Add(at, key, "is given twice", "keep one")
		}
	}
	for i, s := range f.ExtraEnabled {
		found.Join("extraEnabled"+Item(i), s.Validate())
	}
	return found.Err()
}

// Validate says what is wrong with the signal; each error in it is a *[FieldError].
func (s Signal) Validate() error {
	var found Findings
	if places := s.Effect.places(); places == nil {
		found.Add("effect", given(string(s.Effect)), missingOr(s.Effect == "", "is not known"),
			fmt.Sprintf("want %s, %s or %s", Protect, IgnoreNode, IgnoreTaint))
	} else if !slices.Contains(places, string(s.Where)) {
		found.Add("where", given(string(s.Where)), missingOr(s.Where == "", fmt.Sprintf("cannot have the effect %s", s.Effect)),
			"want "+either(places))
	}
	name, isPrefix := s.Key, false
	if s.Where == SignalTaint && strings.HasSuffix(s.Key, "/") {
		name, isPrefix = s.Key+"x", true
	}
	switch {
	case s.Key == "":
		found.Add("key", nil, "is missing", "")
	case len(validation.IsQualifiedName(name)) > 0 && !isPrefix:
		found.Add("key", s.Key, "is not a key", "write NAME or PREFIX/NAME")
	case len(validation.IsQualifiedName(name)) > 0:
		found.Add("key", s.Key, "is not a prefix of keys", "write PREFIX/")
	}
	if s.Duration && s.Effect != Protect {
		found.Add("duration", s.Duration, "goes only with the effect "+string(Protect), "")
	}
	if s.Duration && s.Value != "" {
		found.Add("duration", s.Duration, "cannot be used together with value", "keep one")
	}
	return found.Err()
}

// places are where the effect may be looked for; nil for an effect that is not known.
func (e SignalEffect) places() []string {
	switch e {
	case Protect:
		return []string{string(SignalAnnotation), string(SignalLabel)}
	case IgnoreNode:
		return []string{string(SignalAnnotation), string(SignalLabel), string(SignalTaint), string(SignalCondition)}
	case IgnoreTaint:
		return []string{string(SignalTaint)}
	}
	return nil
}

// given is the value to be shown; of one that is missing nothing is.
func given(value string) any {
	if value == "" {
		return nil
	}
	return value
}

func missingOr(missing bool, wrong string) string {
	if missing {
		return "is missing"
	}
	return wrong
}

// either joins words as in "a, b or c".
func either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
