package main

import (
	"bytes"
	"regexp"
	"testing"
)

// TestDemo runs the same program as `make demo`. Package cluster tests the cleanup.
func TestDemo(t *testing.T) {
	var seen bytes.Buffer
	if err := show(t.Context(), &seen, false); err != nil {
		t.Fatalf("demo: %v\n%s", err, seen.Bytes())
	}
	text := seen.Bytes()
	// One line of each kind, in order.
	steps := []*regexp.Regexp{
		regexp.MustCompile(`(?m)^── Starting 20 nodes and 203 pods\.$`),
		regexp.MustCompile(`(?m)^── \d+ pods run on node-\d+\. They have to move:$`),
		regexp.MustCompile(`(?m)^   \$ kubectl taint node node-\d+ maintenance=soon:NoSchedule$`),
		regexp.MustCompile(`(?m)^── All but one have moved\.`),
		regexp.MustCompile(`(?m)^── node-\d+ is empty\. Its (\d+) pods were evicted, each once, and \d+ new ones are Ready on other nodes:$`),
		regexp.MustCompile(`(?m)^── Done in `),
	}
	rest := text
	for _, step := range steps {
		found := step.FindIndex(rest)
		if found == nil {
			t.Fatalf("not shown, or not in its place: %s\n%s", step, text)
		}
		rest = rest[found[1]:]
	}
	for _, line := range []string{
		`delta    node/node-\d+ +taints: none → maintenance=soon:NoSchedule`,
		`intents  node/node-\d+ +RemovePodsViolatingNodeTaints: move \d+: `,
		`verdict  pod/shop/web-\S+ +evicted from node-\d+: does not tolerate maintenance=soon:NoSchedule`,
		`verdict  pod/shop/payments-\S+ +deferred: DisruptionBudget: poddisruptionbudget shop/payments: 3 of 3 healthy pods needed`,
	} {
		if !regexp.MustCompile(line).Match(text) {
			t.Errorf("not shown: %s\n%s", line, text)
		}
	}
}
