package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// keepOff returns a function with all fields.
const keepOff = `functions:
- name: KeepOffSpot
  scope: node
  wakes: [node.labels, pod.scheduled]
  point: balance
  priority: node
  renewsPods: true
  mayReturn: true
  facts: [elsewhere]
  summary: Moves them.
  args: {label: spot, weight: 1}
  argsSchema:
    properties: {label: {type: string}, weight: {type: integer, minimum: 0}}
    required: [label]
    additionalProperties: false
  http: {url: "https://keep-off-spot.default.svc/decide?strict=1", timeout: 2s, parallel: 3}
`

// plain removes the parts of the functions that cannot be compared.
func plain(outside []Outside) []Outside {
	for i := range outside {
		outside[i].Strategy.NewArgs = nil
	}
	return outside
}

func TestFunctionOfFile(t *testing.T) {
	short := func(name string, kind schemas.ScopeKind) Strategy {
		return Strategy{Name: name, Point: Deschedule, Scope: kind, Wakes: []schemas.DeltaKind{schemas.PodLabels},
			Traits: Traits{Priority: PriorityViolation, Opaque: true}}
	}
	for _, c := range []struct {
		name, text string
		want       Outside
	}{
		{"one that says everything", keepOff, Outside{
			Strategy: Strategy{
				Name: "KeepOffSpot", Point: Balance, Summary: "Moves them.", Scope: schemas.NodeKind,
				Wakes: []schemas.DeltaKind{schemas.NodeLabels, schemas.PodScheduled},
				Traits: Traits{
					Priority: PriorityNode, RenewsPods: true, MayReturn: true, Facts: []Fact{FactElsewhere}, Opaque: true,
				},
			},
			URL: "https://keep-off-spot.default.svc/decide?strict=1", Timeout: 2 * time.Second, Parallel: 3,
		}},
		{"one that says little, over HTTP", "functions: [{name: a-1, scope: pod, wakes: [pod.labels], http: {url: http://a:80}}]",
			Outside{Strategy: short("a-1", schemas.PodKind), URL: "http://a:80", Timeout: 10 * time.Second, Parallel: 8}},
		{"one that says little, over NATS",
			"functions: [{name: A, scope: workload, wakes: [pod.labels], nats: {subject: functions.a}}]",
			Outside{Strategy: short("A", schemas.WorkloadKind), Subject: "functions.a", Timeout: 10 * time.Second, Parallel: 8}},
		{"the bounds",
			"functions: [{name: A, scope: domain, wakes: [pod.labels], nats: {subject: rehomed, timeout: 100ms, parallel: 256}}]",
			Outside{Strategy: short("A", schemas.DomainKind), Subject: "rehomed", Timeout: 100 * time.Millisecond, Parallel: 256}},
		{"a built-in strategy", "functions: [{name: RemovePodsViolatingNodeTaints, http: {url: http://a, timeout: 10m, parallel: 1}}]",
			Outside{Strategy: known()[0], URL: "http://a", Timeout: 10 * time.Minute, Parallel: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want.Strategy.NewArgs != nil {
				c.want.Strategy.NewArgs = nil
			}
			if got := plain(parse(t, start+c.text).Outside); !reflect.DeepEqual(got, []Outside{c.want}) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestFunctionArgumentsOverDefaults(t *testing.T) {
	for _, c := range []struct{ name, defaults, args, want string }{
		{"no entry, and no defaults", "", "null", `{}`},
		{"no entry is the defaults", "args: {a: {b: 1}, c: [2]}", "null", `{"a":{"b":1},"c":[2]}`},
		{"an entry replaces a whole one", "args: {a: {b: 1}, c: [2]}", "{a: {d: null}}", `{"a":{"d":null},"c":[2]}`},
		{"a null takes one away", "args: {a: 1, c: 2}", "{a: null, d: null}", `{"c":2}`},
		{"a null as a default is no entry", "args: {a: null, c: 2}", "{}", `{"c":2}`},
		{"any value is an argument", "", `{1: true, "a.b": 3000000000, c: 0.5, d: 2001-01-01, e: "<"}`,
			`{"1":true,"a.b":3000000000,"c":0.5,"d":"2001-01-01","e":"\u003c"}`},
	} {
		for _, scope := range []schemas.ScopeKind{
			schemas.NodeKind, schemas.PodKind, schemas.WorkloadKind, schemas.DomainKind, schemas.SpreadKind, schemas.UsageKind} {
			t.Run(c.name+"/"+string(scope), func(t *testing.T) {
				p := parse(t, fmt.Sprintf(start+`
functions:
- name: Own
  scope: %s
  wakes: [pod.labels]
  http: {url: http://a}
  %s
profiles:
- pluginConfig: [{name: Own, args: %s}]
  plugins: {deschedule: {enabled: [Own]}}
`, scope, c.defaults, c.args))
				want := Enabled{Args: json.RawMessage(c.want), Strategy: Strategy{
					Name: "Own", Point: Deschedule, Scope: scope, Wakes: []schemas.DeltaKind{schemas.PodLabels},
					Traits: Traits{Priority: PriorityViolation, Opaque: true},
				}}
				if got := p.Profiles[0].Strategies; !reflect.DeepEqual(got, []Enabled{want}) {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			})
		}
	}
}

func TestFunctionArgumentsReadBack(t *testing.T) {
	p, err := Parse("policy.yaml", []byte(start+`
functions:
- {name: Own, scope: pod, wakes: [pod.labels], args: {a: 1, b: 2}, http: {url: http://a}}
profiles:
- pluginConfig: [{name: Own, args: {b: null, c: 3}}]
  plugins: {deschedule: {enabled: [Own]}}
`), nil)
	expect.Must(t, err)
	values, err := p.Profiles[0].Strategies[0].Values()
	expect.Must(t, err)
	got, err := json.Marshal(values)
	if want := `{"a":1,"c":3}`; err != nil || string(got) != want {
		t.Errorf("got %s and %v, want %s", got, err, want)
	}
	if defaults, err := json.Marshal(p.Outside[0].Strategy.NewArgs()); err != nil || string(defaults) != `{"a":1,"b":2}` {
		t.Errorf("the defaults are %s, %v after that, want as before", defaults, err)
	}
}
