package scene

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// Policy writes a policy file for the nodes of the scene, and returns its path. more is appended without indentation.
func (s *Scene) Policy(more ...string) string {
	s.T.Helper()
	return s.DeschedulePolicy("RemovePodsViolatingNodeTaints", []string{"{name: RemovePodsViolatingNodeTaints}"}, more...)
}

// DeschedulePolicy is [Scene.Policy] with one strategy of the extension point deschedule. configs are the entries of pluginConfig, each on one line. more is appended without indentation.
func (s *Scene) DeschedulePolicy(strategy string, configs []string, more ...string) string {
	s.T.Helper()
	return s.ProfilesPolicy([]string{Profile("default", "deschedule", strategy, configs...)}, more...)
}

// BalancePolicy is [Scene.DeschedulePolicy] for the extension point balance. args are the arguments on one line.
func (s *Scene) BalancePolicy(strategy, args string, more ...string) string {
	s.T.Helper()
	config := fmt.Sprintf("{name: %s, args: %s}", strategy, args)
	return s.ProfilesPolicy([]string{Profile("default", "balance", strategy, config)}, more...)
}

// ProfilesPolicy is [Scene.Policy] with these profiles. more is appended without indentation.
//
// The cluster circuit breaker counts all nodes of the cluster, so taints of parallel scenes would block this one. Unless more
// configures circuit breakers, the policy disables the check of nodes.
func (s *Scene) ProfilesPolicy(profiles []string, more ...string) string {
	s.T.Helper()
	file := filepath.Join(s.T.TempDir(), "policy.yaml")
	lines := []string{
		"apiVersion: rehome.dev/v1alpha1", "kind: DeschedulerPolicy", "nodeSelector: scene=" + s.Namespace, "profiles:",
	}
	lines = append(append(lines, profiles...), more...)
	if !slices.ContainsFunc(more, func(line string) bool { return strings.HasPrefix(line, "circuitBreakers:") }) {
		lines = append(lines, "circuitBreakers: {cluster: {nodes: 0%}}")
	}
	text := strings.Join(lines, "\n") + "\n"
	filetest.Write(s.T, file, text)
	return file
}

// Profile returns one profile of a policy file with one strategy.
func Profile(name, point, strategy string, configs ...string) string {
	return `  - name: ` + name + `
    pluginConfig: [` + strings.Join(configs, ", ") + `]
    plugins:
      ` + point + `:
        enabled: [` + strategy + `]`
}

// FastRate is a rate that delays nothing, for tests of other limits.
const FastRate = "rate: {evictionsPerSecond: 1000, burst: 1000}"

// ReadPolicy returns the text of a policy file.
func (s *Scene) ReadPolicy(file string) string {
	s.T.Helper()
	data, err := os.ReadFile(file)
	s.T.Must(err)
	return string(data)
}
