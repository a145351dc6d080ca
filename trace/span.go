package trace

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/rehome-dev/rehome/schemas"
)

// Attributes that have no semantic convention.
const (
	strategyKey = attribute.Key("rehome.strategy")
	outcomeKey  = attribute.Key("rehome.outcome")
	reasonKey   = attribute.Key("rehome.reason")
	methodKey   = attribute.Key("rehome.method")
	dryRunKey   = attribute.Key("rehome.dry_run")
)

// description is the content of a span.
type description struct {
	// name is the event type and the kind of its subject, so it has few values.
	name       string
	attributes []attribute.KeyValue
	// failed is the error. Empty means that the event is no failure.
	failed string
}

// describe returns the description of an event. It decodes only deltas and verdicts, because they are small; the subjects of
// scopes and answers have the names.
func describe(e schemas.Event) description {
	about := subjectOf(e.Subject)
	d := description{name: e.Type + " " + about.kind, attributes: []attribute.KeyValue{
		semconv.CloudEventsEventID(e.ID), semconv.CloudEventsEventSource(e.Source),
		semconv.CloudEventsEventType(e.Type), semconv.CloudEventsEventSubject(e.Subject),
	}}
	switch e.Type {
	case schemas.DeltaType:
		if delta, err := schemas.Decode[schemas.Delta](e); err == nil {
			about.node += delta.Node // empty in the delta of a node
		}
	case schemas.ScopeType, schemas.IntentsType:
		if words := strings.Split(e.Channel, "."); len(words) > 2 { // rehome.scope.STRATEGY…
			d.add(strategyKey, fromToken(words[2]))
		}
	case schemas.VerdictType:
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			about.node = v.Intent.Node
			d.verdict(v)
		}
	}
	d.add(semconv.K8SNamespaceNameKey, about.namespace)
	d.add(semconv.K8SPodNameKey, about.pod)
	d.add(semconv.K8SNodeNameKey, about.node)
	return d
}

func (d *description) verdict(v schemas.Verdict) {
	d.add(strategyKey, v.Strategy)
	d.add(outcomeKey, string(v.Outcome))
	d.add(reasonKey, string(v.Reason))
	d.add(methodKey, string(v.Method))
	if v.DryRun {
		d.attributes = append(d.attributes, dryRunKey.Bool(true))
	}
	if v.Outcome == schemas.Failed {
		d.failed = v.Message
	}
}

func (d *description) add(key attribute.Key, value string) {
	if value != "" {
		d.attributes = append(d.attributes, key.String(value))
	}
}

type subject struct{ kind, namespace, pod, node string }

// subjectOf reads the path of an object, such as namespaces/web/pods/api-0, or KIND/KEY of a scope.
func subjectOf(text string) subject {
	words := strings.Split(text, "/")
	switch {
	case len(words) == 4 && words[0] == "namespaces" && words[2] == "pods":
		return subject{kind: "pod", namespace: words[1], pod: words[3]}
	case len(words) == 3 && words[0] == string(schemas.PodKind):
		return subject{kind: "pod", namespace: words[1], pod: words[2]}
	case len(words) == 2 && (words[0] == "nodes" || words[0] == string(schemas.NodeKind)):
		return subject{kind: "node", node: words[1]}
	}
	return subject{kind: words[0]}
}

// fromToken returns the name that a token encodes, or the token itself if it encodes none.
func fromToken(token string) string {
	if name, ok := schemas.FromToken(token); ok {
		return name
	}
	return token
}
