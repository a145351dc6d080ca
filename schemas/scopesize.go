package schemas

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// A scope of n bytes may have lists that need sizeFree + n*sizePerByte bytes in memory. A typical pod needs twice its bytes.
const (
	sizeFree    = 4 << 20
	sizePerByte = 16
)

// checkSize returns an error if the lists in a scope would need too much memory: a small compressed message can list millions of
// empty pods, or of empty containers in a pod. data may be no JSON.
func checkSize(data []byte) error {
	type value struct { // an object or list that has begun
		list  bool
		name  []byte // of the list, as a JSON string
		size  int    // of one element of the list
		count int    // the elements so far
	}
	var open []value
	var text []byte // the last string, which is the name before a list
	used, most := 0, sizeFree+sizePerByte*len(data)
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			text = leadingString(data[i:])
			i += len(text) - 1
			continue
		case '{':
			open = append(open, value{})
			continue
		case '}', ']':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
			continue
		case '[':
			next := value{list: true, name: text}
			if len(open) > 0 && open[len(open)-1].list { // a list in a list has the same name
				next.name, next.size = open[len(open)-1].name, open[len(open)-1].size
			} else if size, known := elementSizes[string(text)]; known {
				next.size = size
			} else {
				var name string
				_ = json.Unmarshal(text, &name) // text that is no JSON string names no list
				next.size = elementSizes[folded(name)]
			}
			open = append(open, next)
		case ',':
		default:
			continue
		}
		if len(open) == 0 || !open[len(open)-1].list {
			continue
		}
		in := &open[len(open)-1] // an element follows
		if used += in.size; used > most {
			return fmt.Errorf("its lists need more than %d bytes of memory, the limit for a scope of %d bytes, at element %d of %s",
				most, len(data), in.count, in.name)
		}
		in.count++
	}
	return nil
}

// leadingString returns the JSON string at the beginning of data, or all of data if the string does not end.
func leadingString(data []byte) []byte {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '"':
			return data[:i+1]
		case '\\':
			i++
		}
	}
	return data
}

// elementSizes has, for each name of a list in a scope, the bytes of one element in memory. If several lists have the name, it
// is the largest element. It has each name as a JSON string, which needs no conversion, and folded.
//
//nolint:gochecknoglobals // a table that nothing changes
var elementSizes = func() map[string]int {
	sizes, known := map[string]int{}, map[reflect.Type]bool{}
	var add func(name string, t reflect.Type)
	add = func(name string, t reflect.Type) {
		switch t.Kind() {
		case reflect.Slice:
			if e := t.Elem(); e.Kind() != reflect.Slice {
				size := max(sizes[folded(name)], int(e.Size()))
				sizes[folded(name)], sizes[`"`+name+`"`] = size, size
			}
			add(name, t.Elem())
		case reflect.Pointer, reflect.Map:
			add(name, t.Elem())
		case reflect.Struct:
			if known[t] {
				return
			}
			known[t] = true
			for f := range t.Fields() {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if tag == "" {
					tag = f.Name
				}
				add(tag, f.Type)
			}
		}
	}
	for _, p := range ScopeTypes() {
		add("", reflect.TypeOf(p))
	}
	return sizes
}()

// folded returns the same text for all names that JSON decodes into the same field.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }
