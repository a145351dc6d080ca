package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestBudgetSelector(t *testing.T) {
	expression := func(key string, op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	elsewhere := budget("elsewhere", selecting("app", "api"))
	elsewhere.Namespace = "other"
	for _, tt := range []struct {
		name string
		set  metav1.Object
		want []string // of the pods api, with app=api and tier=web, and bare, without labels
	}{
		{"the pods with a label", budget("b", selecting("app", "api")), []string{"api"}},
		{"no pods with another value", budget("b", selecting("app", "ap")), nil},
		{"an empty selector selects all of the namespace", budget("b", &metav1.LabelSelector{}), []string{"api", "bare"}},
		{"no selector selects none", budget("b", nil), nil},
		{"a selector that cannot be read selects none", budget("b", expression("app", "Near", "api")), nil},
		{"a budget of another namespace selects none", elsewhere, nil},
		{"the pods with one of several values",
			budget("b", expression("tier", metav1.LabelSelectorOpIn, "db", "web")), []string{"api"}},
		{"the pods with a key", budget("b", expression("tier", metav1.LabelSelectorOpExists)), []string{"api"}},
		{"the pods without a key", budget("b", expression("tier", metav1.LabelSelectorOpDoesNotExist)), []string{"bare"}},
		{"the pods with another value or none",
			budget("b", expression("tier", metav1.LabelSelectorOpNotIn, "db")), []string{"api", "bare"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			podsFirst, budgetFirst := newWorld(t), newWorld(t)
			pods := []metav1.Object{
				ready("api", labelled("app", "api", "tier", "web"), owned("Job", "api-job")), ready("bare", owned("Job", "bare-job")),
			}
			podsFirst.set(pods...)
			podsFirst.told()
			podsFirst.set(tt.set)
			budgetFirst.set(tt.set)
			budgetFirst.set(pods...)
			var told []string
			want := []Pod{shown("api", in("Job", "api-job")), shown("bare", in("Job", "bare-job"))}
			for _, name := range tt.want {
				told = append(told, "workload "+name+"-job")
				for i := range want {
					want[i].Budgeted = want[i].Budgeted || want[i].Ref.Name == name
				}
			}
			expect.Equal(t, "told", podsFirst.told(), told)
			for _, w := range []*world{podsFirst, budgetFirst} {
				expect.Equal(t, "pods", append(w.Pods("api-job"), w.Pods("bare-job")...), want)
			}
		})
	}
}

func TestBudgetChange(t *testing.T) {
	w := newWorld(t)
	api := func(value string) metav1.Object { return ready("api", labelled("app", value), owned("Job", "job")) }
	w.set(api("api"), ready("alone", labelled("app", "api")))
	w.told()
	counted := budget("one", selecting("app", "api"))
	counted.ResourceVersion, counted.Status.DisruptionsAllowed = "2", 1
	for _, tt := range []struct {
		name     string
		change   func()
		told     []string
		budgeted bool
	}{
		{"it gets a budget", func() { w.set(budget("one", selecting("app", "api"))) }, []string{"workload job"}, true},
		{"the budget is counted", func() { w.set(counted) }, nil, true},
		{"it gets a second one", func() { w.set(budget("two", &metav1.LabelSelector{})) }, nil, true},
		{"it loses the first one", func() { w.set(budget("one", selecting("app", "else"))) }, nil, true},
		{"it loses the last one", func() { w.gone(budget("two", nil)) }, []string{"workload job"}, false},
		{"it has the labels of the first one", func() { w.set(api("else")) }, []string{"workload job"}, true},
		{"the first one selects nothing any more", func() { w.set(budget("one", nil)) }, []string{"workload job"}, false},
		{"the first one goes", func() { w.gone(budget("one", nil)) }, nil, false},
	} {
		tt.change()
		expect.Equal(t, tt.name+": told", w.told(), tt.told)
		expect.Equal(t, tt.name, w.Pods("job"), []Pod{shown("api", in("Job", "job"), func(p *Pod) { p.Budgeted = tt.budgeted })})
	}
	w.gone(api(""), ready("alone"))
}

func TestBudgetChangeOncePerWorkload(t *testing.T) {
	w := newWorld(t)
	w.set(replicaSet("api-1", 1, by("Deployment", "api")), replicaSet("api-2", 1, by("Deployment", "api")))
	for _, name := range []string{"a", "b", "c"} {
		w.set(ready(name, labelled("app", "api", "name", name), owned("ReplicaSet", "api-1")),
			ready(name+"2", labelled("app", "api"), owned("ReplicaSet", "api-2")))
	}
	w.told()
	w.set(budget("b", selecting("app", "api")))
	expect.Equal(t, "told", w.told(), []string{"workload api"})
	expect.Equal(t, "pods", w.Pods("api")[:2], []Pod{
		shown("a", in("Deployment", "api"), budgeted), shown("a2", in("Deployment", "api"), budgeted),
	})
}

func TestBudgetNamespaceCleanup(t *testing.T) {
	w := newWorld(t)
	w.set(budget("one", selecting("app", "api")), budget("two", nil))
	expect.Equal(t, "with two budgets", len(w.budgets), 1)
	w.gone(budget("one", nil))
	expect.Equal(t, "with one", len(w.budgets), 1)
	w.gone(budget("two", nil))
	expect.Equal(t, "with none", len(w.budgets), 0)
}
