package crds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// unchecked is the message of the API server when it skips the validation rules after other errors.
const unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; " +
	"correct the existing errors to complete validation"

// names returns n node names as YAML.
func names(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint("worker-", i))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// refusal is an invalid object with all errors of the API server.
type refusal struct {
	name string
	spec string
	want []string
}

// refused creates each object, and compares the errors.
func refused(t *testing.T, kind string, refusals []refusal) {
	t.Helper()
	for _, test := range refusals {
		o := object(t, kind, "refused", test.spec)
		_, err := in(admin(t), o).Create(t.Context(), o, tried)
		got := causes(t, err)
		slices.Sort(got)
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
	}
}

// with returns the spec of a maintenance of one node with more fields.
func with(fields string) string {
	return "{nodes: {names: [worker-1]}, reason: new disk, " + fields + "}"
}

// window and the following functions return specs with one more field.
func window(fields string) string   { return with("window: {" + fields + "}") }
func schedule(fields string) string { return window("schedule: {" + fields + "}") }
func gate(fields string) string     { return with("gates: [{name: disks, " + fields + "}]") }

// manyGates returns n gates as YAML.
func manyGates(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("{name: gate %d, query: up}", i))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func TestInvalidNodes(t *testing.T) {
	const (
		either   = "spec.nodes: Invalid value: must have either names or selector, and not both"
		empty    = "spec.nodes.selector: Invalid value: must not be empty, which would select every node: set matchLabels, matchExpressions or both"
		operator = "spec.nodes.selector: Invalid value: each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
		pattern  = `spec.nodes.names[0] in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'`
	)
	nodes := func(fields string) string { return "{nodes: {" + fields + "}, reason: new disk}" }
	refused(t, "NodeMaintenance", []refusal{
		{"nodes are given", "{reason: new disk}", []string{"spec.nodes: Required value", unchecked}},
		{"there are names or a selector", nodes(""), []string{either}},
		{"there are not both", nodes("names: [a], selector: {matchLabels: {a: b}}"), []string{either}},
		{"there is a name", nodes("names: []"), []string{"spec.nodes.names: Invalid value: must list at least one node"}},
		{"no name is there twice", nodes("names: [a, b, a]"), []string{`spec.nodes.names[2]: Duplicate value: "a"`}},
		{"valid node name", nodes("names: [Worker_1]"), []string{`spec.nodes.names[0]: Invalid value: "Worker_1": ` + pattern}},
		{"a name is not empty", nodes("names: ['']"), []string{`spec.nodes.names[0]: Invalid value: "": ` + pattern}},
		{"there are not more than 1000 names", nodes("names: " + names(1001)), []string{
			"spec.nodes.names: Too many: 1001: must have at most 1000 items", unchecked}},
		{"a selector is not empty", nodes("selector: {}"), []string{empty}},
		{"a selector has labels", nodes("selector: {matchLabels: {}}"), []string{empty}},
		{"a selector has labels or expressions", nodes("selector: {matchLabels: {}, matchExpressions: []}"), []string{empty}},
		{"no part of a selector is empty", nodes("selector: {matchLabels: {a: b}, matchExpressions: []}"), []string{empty}},
		{"no other part of a selector is empty", nodes("selector: {matchLabels: {}, matchExpressions: [{key: a, operator: Exists}]}"), []string{empty}},
		{"an operator exists", nodes("selector: {matchExpressions: [{key: a, operator: Is, values: [b]}]}"), []string{operator}},
		{"In has values", nodes("selector: {matchExpressions: [{key: a, operator: In}]}"), []string{operator}},
		{"NotIn has values", nodes("selector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}"), []string{operator}},
		{"Exists has none", nodes("selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}"), []string{operator}},
		{"Exists has no empty list of them", nodes("selector: {matchExpressions: [{key: a, operator: Exists, values: []}]}"), []string{operator}},
		{"DoesNotExist has none", nodes("selector: {matchExpressions: [{key: a, operator: DoesNotExist, values: [b]}]}"), []string{operator}},
	})
}

func TestInvalidSpec(t *testing.T) {
	const (
		reason   = "must say in words why the nodes are worked on"
		atOnce   = "must be a number of nodes from 1 to 1000000, or a share of them from 1% to 100%"
		topology = "must be the key of a label, such as topology.kubernetes.io/zone"
		deadline = "must be longer than 0, in hours, minutes and seconds, such as 1h30m"
	)
	refused(t, "NodeMaintenance", []refusal{
		{"there is a reason", "{nodes: {names: [a]}}", []string{"spec.reason: Required value", unchecked}},
		{"the reason is not empty", "{nodes: {names: [a]}, reason: ''}", []string{`spec.reason: Invalid value: "": ` + reason}},
		{"the reason has words", "{nodes: {names: [a]}, reason: '  '}", []string{`spec.reason: Invalid value: "  ": ` + reason}},
		{"the reason has at most 500 characters", "{nodes: {names: [a]}, reason: " + strings.Repeat("ä", 501) + "}", []string{
			"spec.reason: Too long: may not be more than 500 bytes", unchecked}},
		{"the stage exists", with("stage: Rebooting"), []string{
			`spec.stage: Unsupported value: "Rebooting": supported values: "Idle", "Cordon", "Drain", "Complete"`, unchecked}},
		{"at least one node at once", with("atOnce: 0"), []string{"spec.atOnce: Invalid value: 0: " + atOnce}},
		{"no negative number of nodes at once", with("atOnce: -1"), []string{"spec.atOnce: Invalid value: -1: " + atOnce}},
		{"no more nodes at once than Go can count", with("atOnce: 2147483648"), []string{"spec.atOnce: Invalid value: 2147483648: " + atOnce}},
		{"a share is more than nothing", with("atOnce: 0%"), []string{`spec.atOnce: Invalid value: "0%": ` + atOnce}},
		{"a share is at most all", with("atOnce: 101%"), []string{`spec.atOnce: Invalid value: "101%": ` + atOnce}},
		{"a share has a percent sign", with("atOnce: '50'"), []string{`spec.atOnce: Invalid value: "50": ` + atOnce}},
		{"a share is in whole percent", with("atOnce: 1.5%"), []string{`spec.atOnce: Invalid value: "1.5%": ` + atOnce}},
		{"a topology can be a label", with("topology: my zone"), []string{`spec.topology: Invalid value: "my zone": ` + topology}},
		{"a topology is not empty", with("topology: ''"), []string{`spec.topology: Invalid value: "": ` + topology}},
		{"a deadline is a time", with("deadline: soon"), []string{`spec.deadline: Invalid value: "soon": ` + deadline}},
		{"a deadline is longer than 0", with("deadline: 0h0s"), []string{`spec.deadline: Invalid value: "0h0s": ` + deadline}},
		{"a deadline is not negative", with("deadline: -1h"), []string{`spec.deadline: Invalid value: "-1h": ` + deadline}},
		{"a deadline is not in days, which Go cannot read", with("deadline: 2d"), []string{`spec.deadline: Invalid value: "2d": ` + deadline}},
		{"something happens after a deadline only if there is one", with("onDeadline: Hold"), []string{
			"spec.onDeadline: Invalid value: onDeadline needs a deadline: set deadline, or leave onDeadline out"}},
		{"what happens after a deadline exists", with("deadline: 1h, onDeadline: Delete"), []string{
			`spec.onDeadline: Unsupported value: "Delete": supported values: "Continue", "Hold", "Release"`, unchecked}},
		{"a guard exists", with("force: [Everything]"), []string{
			`spec.force[0]: Unsupported value: "Everything": supported values: "AllNodes", "ControlPlane", "SingleNode"`, unchecked}},
		{"no guard is there twice", with("force: [AllNodes, AllNodes]"), []string{`spec.force[1]: Duplicate value: "AllNodes"`}},
	})
	o := maintenance(t, strings.Repeat("a", 64), with("stage: Drain"))
	_, err := in(admin(t), o).Create(t.Context(), o, tried)
	if got, want := causes(t, err), []string{"<nil>: Invalid value: metadata.name must have at most 63 characters"}; !slices.Equal(got, want) {
		t.Errorf("a name of 64 characters:\n got %q\nwant %q", got, want)
	}
}

func TestInvalidWindow(t *testing.T) {
	const (
		some = "spec.window: Invalid value: must have start, end or schedule: leave window out to begin at any time"
		end  = "spec.window.end: Invalid value: end must be after start"
		cron = "must have the five fields of cron, minute hour day month weekday, such as 0 22 * * 6"
		long = "must be longer than 0, in hours, minutes and seconds, such as 1h30m"
		zone = "must be the IANA name of a time zone, such as Europe/Berlin"
	)
	field := func(name, value, message string) []string {
		return []string{fmt.Sprintf("spec.window.schedule.%s: Invalid value: %q: %s", name, value, message)}
	}
	refused(t, "NodeMaintenance", []refusal{
		{"a window says something", window(""), []string{some}},
		{"the end is after the start", window("start: '2026-12-01T10:00:00Z', end: '2026-12-01T09:59:59Z'"), []string{end}},
		{"the end is not the start", window("start: '2026-12-01T10:00:00Z', end: '2026-12-01T10:00:00Z'"), []string{end}},
		{"times of different zones are compared", window("start: '2026-12-01T10:00:00Z', end: '2026-12-01T10:30:00+01:00'"), []string{end}},
		{"a time has a zone", window("start: '2026-12-01T10:00:00'"), []string{
			`spec.window.start: Invalid value: "2026-12-01T10:00:00": spec.window.start in body must be of type date-time: "2026-12-01T10:00:00"`, unchecked}},
		{"a schedule has a cron and a duration", schedule(""), []string{
			"spec.window.schedule.cron: Required value", "spec.window.schedule.duration: Required value", unchecked}},
		{"cron has no four fields", schedule("cron: 0 22 * *, duration: 6h"), field("cron", "0 22 * *", cron)},
		{"cron has no seconds", schedule("cron: 0 0 22 * * 6, duration: 6h"), field("cron", "0 0 22 * * 6", cron)},
		{"cron has no names of times", schedule("cron: '@weekly', duration: 6h"), field("cron", "@weekly", cron)},
		{"cron has no zone", schedule("cron: TZ=UTC 0 22 * * 6, duration: 6h"), field("cron", "TZ=UTC 0 22 * * 6", cron)},
		{"hours have no names", schedule("cron: 0 ten * * 6, duration: 6h"), field("cron", "0 ten * * 6", cron)},
		{"names of days have three letters", schedule("cron: 0 22 * * Saturday, duration: 6h"), field("cron", "0 22 * * Saturday", cron)},
		{"a time lasts", schedule("cron: 0 22 * * 6, duration: 0s"), field("duration", "0s", long)},
		{"a time does not last a negative time", schedule("cron: 0 22 * * 6, duration: -6h"), field("duration", "-6h", long)},
		{"a time lasts a time", schedule("cron: 0 22 * * 6, duration: all night"), field("duration", "all night", long)},
		{"a time zone has a name", schedule("cron: 0 22 * * 6, duration: 6h, timeZone: ''"), field("timeZone", "", zone)},
		{"a time zone is not an offset", schedule("cron: 0 22 * * 6, duration: 6h, timeZone: '+01:00'"), field("timeZone", "+01:00", zone)},
		{"local time zone", schedule("cron: 0 22 * * 6, duration: 6h, timeZone: Local"), field("timeZone", "Local", zone)},
	})
}

func TestInvalidPlan(t *testing.T) {
	const (
		twice      = "spec.plan: Invalid value: two steps are the same, and the second one would never select a pod: leave it out"
		pods       = "spec.plan[0].pods: Invalid value: must not be empty: leave it out to select every pod"
		namespaces = "spec.plan[0].namespaces: Invalid value: must not be empty: leave it out to select every namespace"
	)
	plan := func(steps string) string { return with("plan: [" + steps + "]") }
	refused(t, "NodeMaintenance", []refusal{
		{"no step is there twice", plan("{priority: 1}, {}, {priority: 1}"), []string{twice}},
		{"equal steps, one with defaults", plan("{}, {type: Default}"), []string{twice}},
		{"equal steps with labels in another order", plan(
			"{pods: {matchLabels: {a: b, c: d}}}, {pods: {matchLabels: {c: d, a: b}}}"), []string{twice}},
		{"a selector of pods is not empty", plan("{pods: {}}"), []string{pods}},
		{"a selector of namespaces is not empty", plan("{namespaces: {matchExpressions: []}}"), []string{namespaces}},
		{"no part of a selector of pods is empty", plan("{pods: {matchLabels: {a: b}, matchExpressions: []}}"), []string{pods}},
		{"a type exists", plan("{type: Static}"), []string{
			`spec.plan[0].type: Unsupported value: "Static": supported values: "Default", "DaemonSet"`, unchecked}},
		{"there are at most 32 steps", plan(strings.Repeat("{}, ", 33)), []string{
			"spec.plan: Too many: 33: must have at most 32 items", unchecked}},
	})
}

func TestInvalidGate(t *testing.T) {
	const (
		one = "spec.gates[0]: Invalid value: must have exactly one of condition, annotation and query"
		key = "must be the key of an annotation, such as example.com/disks-moved"
	)
	condition, annotation := "condition: {type: RackPower, status: 'True'}", "annotation: {key: a/b, value: c}"
	refused(t, "NodeMaintenance", []refusal{
		{"a gate asks something", gate(""), []string{one}},
		{"not a condition and an annotation", gate(condition + ", " + annotation), []string{one}},
		{"not an annotation and a query", gate(annotation + ", query: up"), []string{one}},
		{"not all three", gate(condition + ", " + annotation + ", query: up"), []string{one}},
		{"a query is not empty", gate("query: ''"), []string{
			`spec.gates[0].query: Invalid value: "": spec.gates[0].query in body should be at least 1 chars long`}},
		{"a condition has a status that exists", gate("condition: {type: RackPower, status: 'Yes'}"), []string{
			`spec.gates[0].condition.status: Unsupported value: "Yes": supported values: "True", "False", "Unknown"`, unchecked}},
		{"a condition has a type", gate("condition: {type: '', status: 'True'}"), []string{
			`spec.gates[0].condition.type: Invalid value: "": spec.gates[0].condition.type in body should be at least 1 chars long`}},
		{"an annotation has a key", gate("annotation: {key: '', value: a}"), []string{
			`spec.gates[0].annotation.key: Invalid value: "": ` + key}},
		{"a gate has a name", with("gates: [{name: '', query: up}]"), []string{
			`spec.gates[0].name: Invalid value: "": spec.gates[0].name in body should be at least 1 chars long`}},
		{"no two gates have the same name", with("gates: [{name: a, query: up}, {name: a, query: down}]"), []string{
			`spec.gates[1]: Duplicate value: {"name":"a"}`}},
		{"there are at most 16 gates", with("gates: " + manyGates(17)), []string{
			"spec.gates: Too many: 17: must have at most 16 items", unchecked}},
	})
}

func TestInvalidRule(t *testing.T) {
	const (
		pods       = "spec.pods: Invalid value: must not be empty: leave it out to select every pod"
		namespaces = "spec.namespaces: Invalid value: must not be empty: leave it out to select every namespace"
		operator   = "Invalid value: each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
	)
	both := []refusal{
		{"there is a behavior", "{order: 1}", []string{"spec.behavior: Required value", unchecked}},
		{"the behavior exists", "{behavior: drain}", []string{
			`spec.behavior: Unsupported value: "drain": supported values: "Drain", "Skip", "WaitCompleted"`, unchecked}},
		{"a selector of pods is not empty", "{behavior: Skip, pods: {}}", []string{pods}},
		{"an operator exists", "{behavior: Skip, pods: {matchExpressions: [{key: a, operator: Is}]}}", []string{"spec.pods: " + operator}},
		{"the order is not too low", "{behavior: Drain, order: -1001}", []string{
			"spec.order: Invalid value: -1001: spec.order in body should be greater than or equal to -1000"}},
		{"the order is not too high", "{behavior: Drain, order: 1001}", []string{
			"spec.order: Invalid value: 1001: spec.order in body should be less than or equal to 1000"}},
	}
	refused(t, "DrainRule", both)
	refused(t, "ClusterDrainRule", append(both,
		refusal{"a selector of namespaces is not empty", "{behavior: Skip, namespaces: {matchLabels: {}}}", []string{namespaces}},
		refusal{"an operator of namespaces exists", "{behavior: Skip, namespaces: {matchExpressions: [{key: a, operator: In}]}}",
			[]string{"spec.namespaces: " + operator}},
	))
}
