package policy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// taintArgs are arguments of the usual shape.
type taintArgs struct {
	Namespaces     Namespaces            `json:"namespaces,omitzero"`
	LabelSelector  *metav1.LabelSelector `json:"labelSelector,omitzero"`
	Prefer         bool                  `json:"includePreferNoSchedule,omitzero"`
	IncludedTaints []string              `json:"includedTaints,omitzero"`
}

func (a taintArgs) Validate() error {
	var found Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("labelSelector", ValidateSelector(a.LabelSelector))
	for i, taint := range a.IncludedTaints {
		if strings.Contains(taint, ":") {
			found.Add("includedTaints"+Item(i), taint, "can match no taint", "write KEY or KEY=VALUE")
		}
	}
	return found.Err()
}

// limits is embedded, and has a default.
type limits struct {
	Node *uint `json:"node,omitzero"`
	Size uint8 `json:"size"`
}

// balanceArgs have every type that arguments may have.
type balanceArgs struct {
	limits
	Thresholds map[schemas.ScopeKind]float64 `json:"thresholds,omitzero"`
	Window     metav1.Duration               `json:"window,omitzero"`
	Share      intstr.IntOrString            `json:"share,omitzero"`
	Codes      []int32                       `json:"codes,omitzero"`
	Seconds    *int64                        `json:"seconds,omitzero"`
	Conditions []metav1.LabelSelector        `json:"conditions,omitzero"`
	Raw        json.RawMessage               `json:"raw,omitzero"`
	Anything   any                           `json:"anything,omitzero"`
}

func (a balanceArgs) Validate() error {
	if a.Size == 0 {
		return &FieldError{Field: "size", Value: a.Size, Reason: "must be at least 1"}
	}
	return nil
}

func known() []Strategy {
	return []Strategy{
		{Name: "RemovePodsViolatingNodeTaints", Point: Deschedule, Scope: schemas.NodeKind,
			NewArgs: func() Args { return &taintArgs{} }},
		{Name: "LowNodeUtilization", Point: Balance, Scope: schemas.NodeKind,
			NewArgs: func() Args { return &balanceArgs{limits: limits{Size: 7}} }},
	}
}

// ten returns the strategies of the program.
var ten func() []Strategy

// TestInvalidPolicy reads each testdata/CASE.yaml and compares the error with CASE.want.
// UPDATE_GOLDEN=1 in the environment rewrites the latter; review it before the commit.
func TestInvalidPolicy(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 25 {
		t.Fatalf("got %d cases, %v, want at least 25", len(files), err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			expect.Must(t, err)
			strategies := known()
			if strings.HasPrefix(name, "older-") {
				strategies = more()
			}
			p, err := Parse(name, data, strategies)
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("got %+v and %v, want Problems", p, err)
			}
			if !reflect.DeepEqual(p, Policy{}) {
				t.Errorf("got the policy %+v with the error, want the zero Policy", p)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", err.Error()+"\n")
		})
	}
}

const start = "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\n"

// parse reads a valid policy, and removes the parts that cannot be compared or are always equal: the functions, and the
// traits of the test's strategies.
func parse(t *testing.T, text string) Policy {
	t.Helper()
	p, err := Parse("policy.yaml", []byte(text), known())
	if err != nil {
		t.Fatalf("the policy was refused:\n%v\nThe policy:\n%s", err, text)
	}
	for i := range p.Profiles {
		for j := range p.Profiles[i].Strategies {
			p.Profiles[i].Strategies[j].NewArgs = nil
		}
	}
	for _, s := range known() {
		delete(p.Known, s.Name)
	}
	p.Functions = nil
	if len(p.Known) == 0 {
		p.Known = nil
	}
	return p
}

func balance(args string) Enabled {
	return Enabled{Strategy: Strategy{Name: "LowNodeUtilization", Point: Balance, Scope: schemas.NodeKind}, Args: []byte(args)}
}

func taints(args string) Enabled {
	return Enabled{
		Strategy: Strategy{Name: "RemovePodsViolatingNodeTaints", Point: Deschedule, Scope: schemas.NodeKind}, Args: []byte(args),
	}
}

func TestValidPolicy(t *testing.T) {
	seconds := int64(0)
	compareSections(t, func(p Policy) Policy { return p }, []section[Policy]{
		{"needs no profile", start, Policy{Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded}},
		{"may be JSON",
			`{"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",` + "\n\t" + `"nodeSelector": "a in (b,c)", "profiles": []}`,
			Policy{NodeSelector: "a in (b,c)", Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded}},
		{"may ask for something to be off", start + `
maxNoOfPodsToEvictTotal: null
evictionFailureEventNotification: false
metricsCollector: {enabled: false}
metricsProviders: []
profiles:
- name: a
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: false, minReplicas: 1, namespaceLabelSelector: {}, ignorePodsWithoutPDB: no}
`, Policy{Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded, Metrics: Metrics{}, Profiles: []Profile{{Name: "a", Evictor: evictor(t, EvictorArgs{
			MinReplicas: 1, NamespaceLabelSelector: &metav1.LabelSelector{}})}}}},
		{"sets a part of the rate and keeps the default of the rest", start + "rate: {evictionsPerSecond: 0.5}\ngracePeriodSeconds: 0",
			Policy{GracePeriodSeconds: &seconds, Rate: Rate{EvictionsPerSecond: 0.5, Burst: 10}, Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded}},
		{"may ask for all deltas", start + "deltas: All", Policy{Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasAll}},
		{"may leave its only profile without a name, and end in an empty document", "---\n" + start + "profiles: [{}]\n---\n# end\n",
			Policy{Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded, Profiles: []Profile{{Name: "default"}}}},
		{"lists deschedule strategies before balance strategies, each once, and ignores the same fields as the descheduler", start + `
profiles:
- pluginConfig:
  - name: RemovePodsViolatingNodeTaints
  - name: LowNodeUtilization
    args: null
  plugins:
    presort: {enabled: [Anything]}
    sort: {enabled: [Anything]}
    balance: {enabled: [LowNodeUtilization, LowNodeUtilization], disabled: [X]}
    deschedule: {enabled: [RemovePodsViolatingNodeTaints], disabled: ["*"]}
    filter: {enabled: [DefaultEvictor]}
    preevictionfilter: {enabled: [DefaultEvictor]}
`, Policy{Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded, Profiles: []Profile{{Name: "default",
			Strategies: []Enabled{taints(`{}`), balance(`{"size":7}`)}}}}},
		{"may repeat itself with anchors and merges", start + `
profiles:
- name: a
  pluginConfig: &configs
  - name: RemovePodsViolatingNodeTaints
    args: &args {includePreferNoSchedule: true, includedTaints: [a]}
  plugins: &plugins {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
- name: b
  pluginConfig: *configs
  plugins: *plugins
- name: c
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args: {<<: *args, includedTaints: [b]}
  plugins: *plugins
- name: d
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args:
      <<: [{includedTaints: [c]}, *args]
  plugins: *plugins
`, Policy{Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded, Profiles: []Profile{
			{Name: "a", Strategies: []Enabled{taints(`{"includePreferNoSchedule":true,"includedTaints":["a"]}`)}},
			{Name: "b", Strategies: []Enabled{taints(`{"includePreferNoSchedule":true,"includedTaints":["a"]}`)}},
			{Name: "c", Strategies: []Enabled{taints(`{"includePreferNoSchedule":true,"includedTaints":["b"]}`)}},
			{Name: "d", Strategies: []Enabled{taints(`{"includePreferNoSchedule":true,"includedTaints":["c"]}`)}},
		}}},
	})
}

func TestArgumentDefaults(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"nothing", `{}`, `{"size":7}`},
		{"null is nothing", `{size: , thresholds: null, window: ~}`, `{"size":7}`},
		{"embedded and pointers", `{node: 0, size: 255, seconds: -9223372036854775808}`,
			`{"node":0,"size":255,"seconds":-9223372036854775808}`},
		{"numbers in a map", `{thresholds: {cpu: 20, memory: 0.5, pods: 1e1}}`,
			`{"size":7,"thresholds":{"cpu":20,"memory":0.5,"pods":10}}`},
		{"a null in a map is the zero value", `{thresholds: {cpu: }}`, `{"size":7,"thresholds":{"cpu":0}}`},
		{"durations", `{window: 1h30m}`, `{"size":7,"window":"1h30m0s"}`},
		{"a number or text, as a number", `{share: 3}`, `{"size":7,"share":3}`},
		{"a number or text, as text", `{share: 30%}`, `{"size":7,"share":"30%"}`},
		{"whole numbers in other notations", `{codes: [0x10, 1_000, 30.0, -1e3, 010]}`, `{"size":7,"codes":[16,1000,30,-1000,8]}`},
		{"an empty list is not an absent one", `{codes: [], conditions: []}`, `{"size":7,"codes":[],"conditions":[]}`},
		{"lists of maps", `{conditions: [{matchLabels: {a: "1", b: yes}}, {}]}`,
			`{"size":7,"conditions":[{"matchLabels":{"a":"1","b":"yes"}},{}]}`},
		{"anything", `{raw: {a: [1, x, null, 2001-01-01]}, anything: [true, 1.5, {"b": {}}]}`,
			`{"size":7,"raw":{"a":[1,"x",null,"2001-01-01"]},"anything":[true,1.5,{"b":{}}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := parse(t, start+`
profiles:
- pluginConfig: [{name: LowNodeUtilization, args: `+c.args+`}]
  plugins: {balance: {enabled: [LowNodeUtilization]}}
`)
			want := Policy{Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(), Deltas: DeltasNeeded, Profiles: []Profile{{Name: "default", Strategies: []Enabled{balance(c.want)}}}}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %s\nwant %s", got.Profiles[0].Strategies[0].Args, c.want)
			}
		})
	}
}

func TestNodeSelector(t *testing.T) {
	for _, c := range []struct {
		selector string
		want     []string
	}{
		{"", []string{"web", "batch", "none"}},
		{"pool=web", []string{"web"}},
		{"pool,pool notin (web)", []string{"batch"}},
		{"pool in (", nil}, // never returned by Parse
	} {
		var got []string
		for _, pool := range []string{"web", "batch", "none"} {
			set := labels.Set{"pool": pool}
			if pool == "none" {
				set = nil
			}
			if (Policy{NodeSelector: c.selector}).Selector().Matches(set) {
				got = append(got, pool)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q selects %q, want %q", c.selector, got, c.want)
		}
	}
}

func TestProfileByName(t *testing.T) {
	p := Policy{Profiles: []Profile{{Name: "a"}, {Name: "b"}}}
	if got, ok := p.Profile("b"); !ok || got.Name != "b" {
		t.Errorf("got %+v, %v, want profile b", got, ok)
	}
	if got, ok := p.Profile("c"); ok || !reflect.DeepEqual(got, Profile{}) {
		t.Errorf("got %+v, %v, want none", got, ok)
	}
}

func TestAliasExpansionLimit(t *testing.T) {
	for name, level := range map[string]func(aliases string) string{
		"lists":  func(aliases string) string { return "[" + aliases + "]" },
		"merges": func(aliases string) string { return "{<<: [" + aliases + "]}" },
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString(start + "profiles:\n- pluginConfig:\n  - name: LowNodeUtilization\n    args:\n      anything:\n" +
				"      - &x0 {a: b}\n")
			for i := range 9 {
				from, to := string(rune('0'+i)), string(rune('1'+i))
				aliases := strings.TrimSuffix(strings.Repeat("*x"+from+", ", 10), ", ")
				b.WriteString("      - &x" + to + " " + level(aliases) + "\n")
			}
			_, err := Parse("policy.yaml", []byte(b.String()), known())
			var problems Problems
			if !errors.As(err, &problems) || !slices.ContainsFunc(problems, func(p Problem) bool {
				return p.Wrong == "the file expands to more than 100000 values" && p.Right == "use fewer aliases"
			}) {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}

func TestParseArbitraryBytes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	expect.Must(t, err)
	broken, err := filepath.Glob("testdata/broken/*.yaml")
	expect.Must(t, err)
	for _, path := range append(files, broken...) {
		data, err := os.ReadFile(path)
		expect.Must(t, err)
		for end := 0; end < len(data); end += 29 { // cut off, and with one byte lost; 29 reaches every column sooner or later
			_, _ = Parse(path, data[:end], ten())
			_, _ = Parse(path, append(slices.Clone(data[:end]), data[end+1:]...), ten())
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	broken, _ := filepath.Glob("testdata/broken/*.yaml")
	for _, path := range append(files, broken...) {
		data, _ := os.ReadFile(path)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("policy.yaml", data, ten())
		var problems Problems
		if err != nil && (!errors.As(err, &problems) || len(problems) == 0 || !reflect.DeepEqual(p, Policy{})) {
			t.Errorf("got %+v and %v, want the zero Policy and Problems", p, err)
		}
		for _, problem := range problems {
			if problem.Line < 1 || problem.Wrong == "" {
				t.Errorf("got %+v, want a line and a text", problem)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString(start + "profiles:\n")
	for name := range strings.FieldsSeq("a b c d e f g h i j") {
		text.WriteString(`- name: ` + name + `
  pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args: {includedTaints: [a, b, c], namespaces: {exclude: [kube-system]}, labelSelector: {matchLabels: {a: b}}}
  - name: DefaultEvictor
    args: {podProtections: {extraEnabled: [PodsWithPVC]}, priorityThreshold: {value: 10000}}
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`)
	}
	data := []byte(text.String())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("policy.yaml", data, known()); err != nil {
			b.Fatal(err)
		}
	}
}
