package settings

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// ReadPolicy reads and checks a policy file. The content is the text of the file.
func ReadPolicy(file string) (policy.Policy, Content, error) {
	if file == "" {
		return policy.Policy{}, Content{}, fmt.Errorf("no policy: name a file with --policy or REHOME_POLICY")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return policy.Policy{}, Content{}, fmt.Errorf("policy: %w", err)
	}
	p, err := policy.Parse(file, data, Strategies())
	if err != nil {
		return policy.Policy{}, Content{}, err
	}
	return p, ContentOf(data, nil), nil
}

// Strategies describes the strategies of this binary to the policy.
func Strategies() []policy.Strategy {
	var known []policy.Strategy
	for _, f := range functions.All() {
		known = append(known, f.Strategy)
	}
	return known
}

// Content identifies one state of the file: the hash of its text, or the error of reading it.
type Content struct {
	hash [sha256.Size]byte
	err  string
}

// ContentOf returns the content of a file that was read with this result.
func ContentOf(data []byte, err error) Content {
	if err != nil {
		return Content{err: err.Error()}
	}
	return Content{hash: sha256.Sum256(data)}
}

// WithoutOutside removes the strategies with external functions from the profiles, and warns about each: without a bus,
// there is no dispatcher.
func WithoutOutside(p policy.Policy, notes io.Writer) policy.Policy {
	var told []string
	profiles := slices.Clone(p.Profiles)
	for i := range profiles {
		var inside []policy.Enabled
		for _, s := range profiles[i].Strategies {
			if _, outside := p.OutsideOf(s.Name); !outside {
				inside = append(inside, s)
			} else if !slices.Contains(told, s.Name) {
				told = append(told, s.Name)
				fmt.Fprintf(notes, "warning: strategy %s has an external function in the policy, "+
					"which cannot be called here, so it is not evaluated\n", s.Name)
			}
		}
		profiles[i].Strategies = inside
	}
	p.Profiles = profiles
	return p
}
