package schemas_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// breaks returns a sorted list of incompatible changes between two sets of schemas.
func breaks(before, now map[string]any) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		c := evolution{file: name, known: words(before[name])}
		if now[name] == nil {
			c.say("#", "the schema is gone")
		} else {
			c.schema("#", before[name], now[name])
		}
		found = append(found, c.found...)
	}
	return found
}

// words returns the values of all enums and consts of a schema.
func words(schema any) map[string]bool {
	all := map[string]bool{}
	switch s := schema.(type) {
	case map[string]any:
		for keyword, value := range s {
			switch keyword {
			case "const":
				all[fmt.Sprint(value)] = true
			case "enum":
				for _, v := range value.([]any) {
					all[fmt.Sprint(v)] = true
				}
			}
			maps.Copy(all, words(value))
		}
	case []any:
		for _, value := range s {
			maps.Copy(all, words(value))
		}
	}
	return all
}

// evolution compares two versions of a schema.
type evolution struct {
	file  string
	known map[string]bool
	found []string
}

func (c *evolution) say(at, what string) {
	c.found = append(c.found, fmt.Sprintf("v1/%s %s: %s", c.file, at, what))
}

// schema compares one location of both versions. Descriptions may change. Fields, definitions, values, and conditions about new
// values may be added. Everything else must stay.
func (c *evolution) schema(at string, before, now any) {
	was, wasObject := before.(map[string]any)
	is, isObject := now.(map[string]any)
	if !wasObject || !isObject {
		if !reflect.DeepEqual(before, now) {
			c.say(at, fmt.Sprintf("was %s, is %s", written(before), written(now)))
		}
		return
	}
	keywords := maps.Clone(was)
	maps.Copy(keywords, is)
	for _, keyword := range slices.Sorted(maps.Keys(keywords)) {
		c.keyword(at+"/"+keyword, keyword, was[keyword], is[keyword])
	}
}

func (c *evolution) keyword(at, keyword string, before, now any) {
	switch keyword {
	case "title", "description", "$comment", "examples", "deprecated":
	case "properties", "$defs":
		c.named(at, before, now)
	case "required":
		c.required(at, before, now)
	case "enum":
		c.values(at, before, now)
	case "anyOf":
		c.alternatives(at, before, now)
	case "allOf":
		c.conditions(at, before, now)
	case "items", "additionalProperties", "if", "then", "else":
		c.schema(at, before, now)
	default:
		if !reflect.DeepEqual(before, now) {
			c.say(at, fmt.Sprintf("was %s, is %s", written(before), written(now)))
		}
	}
}

// named compares fields or definitions. New ones are compatible.
func (c *evolution) named(at string, before, now any) {
	was, _ := before.(map[string]any)
	is, _ := now.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, there := is[name]; there {
			c.schema(at+"/"+name, was[name], is[name])
		} else {
			c.say(at+"/"+name, "is gone")
		}
	}
}

// required compares required fields: readers depend on the old ones, and old writers do not set new ones.
func (c *evolution) required(at string, before, now any) {
	was, is := texts(before), texts(now)
	for _, name := range was {
		if !slices.Contains(is, name) {
			c.say(at, name+" is not required any more")
		}
	}
	for _, name := range is {
		if !slices.Contains(was, name) {
			c.say(at, name+" is required now")
		}
	}
}

func (c *evolution) values(at string, before, now any) {
	is := texts(now)
	for _, value := range texts(before) {
		if !slices.Contains(is, value) {
			c.say(at, value+" is gone")
		}
	}
	if before == nil {
		c.say(at, "was any value, is one of "+strings.Join(is, ", "))
	}
}

// alternatives compares alternatives in their order. More of them are compatible.
func (c *evolution) alternatives(at string, before, now any) {
	was, _ := before.([]any)
	is, _ := now.([]any)
	if len(was) == 0 && len(is) > 0 {
		c.say(at, "was anything, is one of "+written(now))
	}
	free := slices.Clone(is)
	for i, alternative := range was {
		match := slices.IndexFunc(free, func(other any) bool { return sameKind(alternative, other) })
		if match < 0 {
			c.say(fmt.Sprintf("%s/%d", at, i), "is gone: "+written(alternative))
			continue
		}
		c.schema(fmt.Sprintf("%s/%d", at, i), alternative, free[match])
		free = slices.Delete(free, match, match+1)
	}
}

// sameKind reports whether two alternatives have the same reference, or both have none.
func sameKind(a, b any) bool {
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	return reflect.DeepEqual(x["$ref"], y["$ref"])
}

// conditions compares conditions by their if. A new condition about a new value is compatible.
func (c *evolution) conditions(at string, before, now any) {
	was, _ := before.([]any)
	is, _ := now.([]any)
	var kept []int
	for _, condition := range was {
		match := slices.IndexFunc(is, func(other any) bool { return reflect.DeepEqual(about(condition), about(other)) })
		if match < 0 {
			c.say(at, "a condition is gone: if "+written(about(condition)))
			continue
		}
		kept = append(kept, match)
		c.schema(fmt.Sprintf("%s/%d", at, match), condition, is[match])
	}
	for i, condition := range is {
		if !slices.Contains(kept, i) && !c.aboutNews(condition) {
			c.say(fmt.Sprintf("%s/%d", at, i), "a new condition about what there was before: "+written(condition))
		}
	}
}

// about returns the if of a condition.
func about(condition any) any { return condition.(map[string]any)["if"] }

// aboutNews reports whether a condition applies only if a field has a value that the old schema does not have.
func (c *evolution) aboutNews(condition any) bool {
	s := condition.(map[string]any)
	when, _ := s["if"].(map[string]any)
	fields, _ := when["properties"].(map[string]any)
	if len(fields) != 1 || s["else"] != nil {
		return false
	}
	for _, field := range fields {
		f, _ := field.(map[string]any)
		return f["const"] != nil && !c.known[fmt.Sprint(f["const"])]
	}
	return false
}

func texts(list any) []string {
	var all []string
	values, _ := list.([]any)
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

func written(v any) string {
	if v == nil {
		return "not said"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
