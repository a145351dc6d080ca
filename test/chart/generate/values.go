package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// schema is a JSON Schema.
type schema = map[string]any

// types are the schemas that comments in values.yaml name after "@schema".
var types = map[string]schema{
	"count":          {"type": "integer", "minimum": 0},
	"positive":       {"type": "integer", "minimum": 1},
	"countOrNull":    {"type": []any{"integer", "null"}, "minimum": 0},
	"countOrPercent": {"type": []any{"integer", "string"}, "minimum": 0, "pattern": "^([0-9]+%?)?$"},
	"port":           {"type": "integer", "minimum": 1, "maximum": 65535},
	"duration":       {"type": "string", "pattern": "^([0-9]+([.][0-9]+)?(ms|s|m|h))+$"},
	"quantity":       {"type": "string", "pattern": "^[0-9]+([.][0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"},
	"digest":         {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
	"pullPolicy":     {"enum": []any{"Always", "IfNotPresent", "Never"}},
	"map":            {"type": "object", "additionalProperties": schema{"type": "string"}},
	"objects":        {"type": "array", "items": schema{"type": "object"}},
	"strings":        {"type": "array", "items": schema{"type": "string"}},
	"strategies":     {"type": "array", "items": schema{"type": "string"}, "uniqueItems": true},
}

// value is one key of values.yaml.
type value struct {
	path        string
	section     string // only of keys at the top
	description string
	schema      schema
	byDefault   *yaml.Node
	inner       []value // empty: the schema has no properties of its own
}

var sectionLine = regexp.MustCompile(`^# ---- (.*) ----$`)

// readValues reads the keys of values.yaml, in order. Each has a description: the comment above it or beside it. A comment above
// may end with @schema and the name of a type, or a JSON Schema in YAML, if the type of the default is not enough.
func readValues(text []byte) ([]value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	all, err := keys(document.Content[0], lines, "")
	if err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	section, line := "", 0
	for i := range all {
		for ; line < len(lines) && !strings.HasPrefix(lines[line], all[i].path+":"); line++ {
			if m := sectionLine.FindStringSubmatch(lines[line]); m != nil {
				section = m[1]
			}
		}
		all[i].section = section
	}
	return all, nil
}

// keys are the keys of a mapping.
func keys(mapping *yaml.Node, lines []string, prefix string) (all []value, err error) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		v := value{path: prefix + key.Value, byDefault: node}
		if err := v.comment(lines, key); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", key.Line, v.path, err)
		}
		if v.schema == nil && node.Kind == yaml.MappingNode {
			if v.inner, err = keys(node, lines, v.path+"."); err != nil {
				return nil, err
			}
		} else if v.schema == nil {
			types := map[string]string{"!!str": "string", "!!bool": "boolean"}
			if types[node.Tag] == "" {
				return nil, fmt.Errorf("line %d: %s: write its schema above it, such as # @schema count", key.Line, v.path)
			}
			v.schema = schema{"type": types[node.Tag]}
		}
		all = append(all, v)
	}
	return all, nil
}

// comment reads the description and the schema of a key from the comments above and beside it.
func (v *value) comment(lines []string, key *yaml.Node) error {
	first := key.Line - 1
	indentation := strings.Repeat(" ", key.Column-1) + "#"
	for first > 0 && strings.HasPrefix(lines[first-1], indentation) {
		first--
	}
	var said, typed []string
	for _, line := range lines[first : key.Line-1] {
		line = strings.TrimPrefix(strings.TrimPrefix(line, indentation), " ")
		if rest, is := strings.CutPrefix(line, "@schema"); is {
			typed = []string{strings.TrimSpace(rest)}
		} else if typed != nil {
			typed = append(typed, line)
		} else {
			said = append(said, line)
		}
	}
	said = append(said, strings.TrimPrefix(strings.TrimPrefix(key.LineComment+v.byDefault.LineComment, "#"), " "))
	v.description = strings.TrimSpace(strings.Join(said, " "))
	if v.description == "" {
		return fmt.Errorf("write a comment that describes it")
	}
	if named, is := types[strings.Join(typed, "")]; is {
		v.schema = maps.Clone(named)
	} else if typed != nil {
		return yaml.Unmarshal([]byte(strings.Join(typed, "\n")), &v.schema)
	}
	return nil
}

// schemaOf is the schema of an object with these keys and no others.
func schemaOf(values []value) schema {
	properties := schema{}
	for _, v := range values {
		s := v.schema
		if s == nil {
			s = schemaOf(v.inner)
		}
		s["description"] = v.description
		properties[v.path[strings.LastIndex(v.path, ".")+1:]] = s
	}
	return schema{"type": "object", "additionalProperties": false, "properties": properties}
}

// valuesSchema is the content of values.schema.json. policy is the JSON Schema of the policy, or nil.
func valuesSchema(chart string, values []value, policy []byte) ([]byte, error) {
	all := schemaOf(values)
	all["$schema"], all["title"] = "http://json-schema.org/draft-07/schema#", "Values of the chart "+chart
	all["properties"].(schema)["global"] = schema{"type": "object", "description": "Values of a chart that this one is a part of. None is read."}
	if policy != nil {
		if err := embed(all, policy); err != nil {
			return nil, err
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// embed adds the schema of the policy. It holds for the policy and the additions before they are rendered with tpl, so any value
// may be a string with a template.
func embed(all schema, text []byte) error {
	var policy struct {
		Then schema `json:"then"` // descheduler/v1alpha1
		Else schema `json:"else"` // the newer versions
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		return err
	}
	sections := policy.Else["properties"].(schema)
	own := schema{} // sections that only rehome.dev/v1alpha1 has
	for _, rule := range policy.Else["allOf"].([]any) {
		then := rule.(schema)["then"].(schema)["properties"].(schema)
		if then["rate"] == false {
			own = then
		}
	}
	if len(own) == 0 {
		return fmt.Errorf("policy.schema.json: no rule for descheduler/v1alpha2")
	}
	for _, of := range []schema{sections, policy.Then["properties"].(schema)} {
		delete(of, "apiVersion")
		delete(of, "kind")
	}
	properties := all["properties"].(schema)
	for _, key := range []string{"deschedulerPolicy", "policyAdditions"} {
		properties[key].(schema)["type"] = "object"
	}
	all["definitions"] = schema{
		"policy": schema{"properties": templated(sections), "additionalProperties": false},
		"older":  schema{"properties": templated(policy.Then["properties"]), "additionalProperties": false},
	}
	refer := func(name string) schema { return schema{"$ref": "#/definitions/" + name} }
	is := func(version string) schema {
		return schema{"properties": schema{"deschedulerPolicyAPIVersion": schema{"const": version}}}
	}
	all["if"] = is("descheduler/v1alpha1")
	all["then"] = schema{"properties": schema{"deschedulerPolicy": refer("older")}}
	all["else"] = schema{
		"properties": schema{"deschedulerPolicy": refer("policy"), "policyAdditions": refer("policy")},
		"if":         is("descheduler/v1alpha2"),
		"then":       schema{"properties": schema{"deschedulerPolicy": schema{"properties": own}}},
	}
	return nil
}

// templated is a schema, or a list or a map of schemas. Each string, number, and boolean in it may also be a template.
func templated(of any) any {
	switch of := of.(type) {
	case []any:
		all := make([]any, len(of))
		for i, s := range of {
			all[i] = templated(s)
		}
		return all
	case schema:
		all := schema{}
		for key, s := range of {
			switch _, isName := s.(schema); {
			case key == "if", !isName && key != "allOf":
				all[key] = s
			default:
				all[key] = templated(s)
			}
		}
		if kinds, is := of["type"].([]any); is && !slices.Contains(kinds, any("object")) && !slices.Contains(kinds, any("array")) {
			return schema{"anyOf": []any{all, schema{"type": "string", "pattern": "[{][{]"}}}
		}
		return all
	}
	return of
}
