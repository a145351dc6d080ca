package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

//go:embed asyncapi.yaml.tmpl
var asyncAPITemplate string

// channel is the part of the NATS subjects of an event type that have the same words.
type channel struct {
	ID, Noun, Address, Title, Description, Stream string
	Parameters                                    []parameter
}

type parameter struct {
	Name, Description string
	Values            []string
}

type operation struct{ ID, Action, Channel, Message, Role string }

type message struct{ Noun, Type, Title, Description string }

// asyncAPI returns the AsyncAPI document: the event types of package schemas, and the table of nouns of package bus.
func asyncAPI(e *events, envelope object) ([]byte, error) {
	var d struct {
		Channels              []channel
		Operations, Questions []operation
		Messages              []message
		Headers               string
	}
	for _, n := range bus.Nouns() {
		if n.Type == "" {
			continue
		}
		title := strings.ToUpper(n.Name[:1]) + n.Name[1:]
		m := message{n.Name, n.Type, title, quoted(e.summary(n.Type))}
		d.Messages = append(d.Messages, m)
		for _, subject := range schemas.Subjects(n.Type) {
			c := e.channel(n, subject)
			c.Title, c.Description = title, m.Description
			d.Channels = append(d.Channels, c)
			of := strings.ToUpper(c.ID[:1]) + c.ID[1:]
			d.Operations = append(d.Operations, operations(n, of, c.ID, n.Name)...)
		}
	}
	for _, n := range bus.Nouns() {
		if n.Stream == bus.StreamDead {
			d.Operations = append(d.Operations, operations(n, "DeadLetter", "deadLetters", "deadLetter")...)
		}
	}
	d.Questions = []operation{
		{ID: "dispatcherSendsQuestion", Action: "send", Role: string(bus.RoleDispatcher)},
		{ID: "functionReceivesQuestion", Action: "receive", Role: string(bus.RoleFunction)},
	}
	headers, err := headersOf(envelope)
	if err != nil {
		return nil, err
	}
	d.Headers = headers
	join := func(values []string) string { return strings.Join(values, ", ") }
	t, err := template.New("asyncapi").Funcs(template.FuncMap{"join": join}).Parse(asyncAPITemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// operations returns the operations of the roles that send and receive a message. Their IDs end with suffix.
func operations(n bus.Noun, suffix, channel, message string) (all []operation) {
	for _, r := range n.Publishers() {
		all = append(all, operation{string(r) + "Sends" + suffix, "send", channel, message, string(r)})
	}
	for _, r := range n.Readers() {
		all = append(all, operation{string(r) + "Receives" + suffix, "receive", channel, message, string(r)})
	}
	return all
}

// summary returns the first sentence of the comment of the data of a type. The data of a scope depends on its kind, so its
// sentence is about all kinds.
func (e *events) summary(eventType string) string {
	if eventType == schemas.ScopeType {
		return "Scope is the input of one function."
	}
	for t, noun := range e.nouns {
		if strings.Split(eventType, ".")[2] == noun {
			text := e.source.plain("schemas", e.source.docs[keyOf(t)])
			first, _, _ := strings.Cut(text, ". ")
			return strings.TrimSuffix(first, ".") + "."
		}
	}
	return ""
}

// capitals are the names in a subject.
var capitals = regexp.MustCompile(`\b[A-Z]+\b`)

// channel returns the channel of a subject such as rehome.delta.node.ASPECT.NAME. Its ID has the words of the subject.
func (e *events) channel(n bus.Noun, subject string) channel {
	c := channel{Noun: n.Name, Stream: n.Stream}
	c.Address = capitals.ReplaceAllStringFunc(subject, func(name string) string { return "{" + strings.ToLower(name) + "}" })
	kind := "" // the words behind the noun
	for _, word := range strings.Split(subject, ".")[1:] {
		switch {
		case capitals.MatchString(word):
			p := parameter{Name: strings.ToLower(word)}
			p.Values, p.Description = e.valuesIn(p.Name, kind)
			c.Parameters = append(c.Parameters, p)
		case c.ID == "":
			c.ID = word
		default:
			c.ID, kind = c.ID+strings.ToUpper(word[:1])+word[1:], word
		}
	}
	return c
}

// valuesIn returns the values of a parameter, if it is an enum. The description is empty if the template describes the parameter.
func (e *events) valuesIn(name, kind string) (values []string, description string) {
	of, description := "", ""
	switch name {
	case "aspect":
		of, description = "DeltaKind", "The changed aspect, the second word of the kind of the delta."
	case "kind":
		of, description = "ScopeKind", "The kind of the scope."
	case "outcome":
		of, description = "Outcome", "The outcome of the verdict."
	default:
		if !strings.Contains(asyncAPITemplate, "\n    "+name+":\n      description: ") {
			description = "The " + name + "."
		}
	}
	for _, c := range e.source.enums["schemas."+of] {
		if value, ok := strings.CutPrefix(c.value, kind+"."); ok {
			values = append(values, value)
		} else if kind == "" {
			values = append(values, c.value)
		}
	}
	return values, description
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// headersOf returns the schema of the headers of an event, with the attributes of the envelope.
func headersOf(envelope object) (string, error) {
	properties, required := object{}, []string{}
	for _, p := range envelope.get("properties").(object) {
		if p.name != "data" { // which is the body
			properties.set("ce-"+p.name, p.value)
		}
	}
	for _, name := range envelope.get("required").([]string) {
		if name != "data" {
			required = append(required, "ce-"+name)
		}
	}
	text, err := marshal(object{{"type", "object"}, {"required", required}, {"properties", properties}})
	if err != nil {
		return "", err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return "", err
	}
	block(&node)
	var b bytes.Buffer
	y := yaml.NewEncoder(&b)
	y.SetIndent(2)
	if err := y.Encode(&node); err != nil {
		return "", fmt.Errorf("headers: %w", err)
	}
	const indent = "        "
	return indent + strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "\n"+indent), nil
}

// block gives a node and its parts the style of YAML instead of JSON.
func block(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		block(c)
	}
}
