package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// Found is what was in the sources.
type Found struct {
	// Objects are those of the wanted kinds, as pointers to the types of k8s.io/api or to [NodeMetrics] and [PodMetrics], in
	// the order of their kinds, namespaces and names. An object that is there twice, the same both times, is listed once.
	Objects []metav1.Object
	// LeftOut counts the others by their kinds, such as ConfigMap or Widget.example.com.
	LeftOut map[string]int
}

// Read reads the objects of the wanted kinds. What the text says beyond the fields of the types is ignored; lists are
// taken apart. Of pods and nodes that have no UID one is derived from the name, and a pod without a namespace is in
// default, so that objects can be written by hand.
//
// The error joins one for each document that cannot be read, and one for each object that is there twice with different
// contents; each names source, document and, if it is known, line. The order of sources and documents does not change what
// is found.
func Read(sources []Source, wanted []schema.GroupVersionKind) (Found, error) {
	r := reader{wanted: map[schema.GroupVersionKind]bool{}}
	for _, k := range wanted {
		r.wanted[k] = true
	}
	var all []document
	for _, s := range sources {
		all = append(all, documents(s)...)
	}
	results := make([]result, len(all))
	parallel(len(all), func(i int) { results[i] = r.document(all[i]) })
	return collect(results)
}

// reader knows what is looked for.
type reader struct {
	wanted map[schema.GroupVersionKind]bool
}

// result is what a part of the sources holds.
type result struct {
	objects []placed
	leftOut map[string]int
	err     error
}

// add takes over what another one found.
func (r *result) add(other result) {
	r.objects = append(r.objects, other.objects...)
	for kind, n := range other.leftOut {
		r.leftOut[kind] += n
	}
}

// placed is an object and where it was found.
type placed struct {
	object metav1.Object
	kind   string
	at     place
}

// place is where something is in the sources.
type place struct {
	source   string
	document int
	line     int // 0: not known
}

func (p place) String() string {
	if p.line > 0 {
		return fmt.Sprintf("%s:%d: document %d", p.source, p.line, p.document)
	}
	return fmt.Sprintf("%s: document %d", p.source, p.document)
}

// batch is how many entries of a list are read at once: enough that sharing them out costs nothing, and few enough that
// all cores are busy to the end.
const batch = 64

// document reads one document.
func (r reader) document(d document) result {
	if first := bytes.TrimSpace(d.text); first[0] == '{' || first[0] == '[' {
		return r.json(d)
	}
	entries, rest, ok := items(d)
	if !ok || !isList(rest) {
		return r.yaml(d)
	}
	batches := slices.Collect(slices.Chunk(entries, batch))
	results := make([]result, len(batches))
	parallel(len(batches), func(i int) { results[i] = r.entries(d, batches[i]) })
	sum := result{leftOut: map[string]int{}}
	for _, some := range results {
		if errors.Is(some.err, errNotAlone) {
			return r.yaml(d)
		}
		sum.err = errors.Join(sum.err, some.err)
		sum.add(some)
	}
	return sum
}

// errNotAlone says that an entry of a list cannot be read by itself: it is less than it is in its document, or the fault
// lies somewhere else, which the document as a whole tells.
var errNotAlone = errors.New("not readable by itself")

// isList says whether a document is a list of objects.
func isList(text []byte) bool {
	head, err := convert(text)
	if err != nil {
		return false
	}
	var is header
	return json.Unmarshal(head, &is) == nil && is.list()
}

// header is what tells what an object is.
type header struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

func (h header) list() bool { return strings.HasSuffix(h.Kind, "List") && h.Items != nil }

// entries reads entries of a list in block style.
func (r reader) entries(d document, list []item) result {
	got := result{leftOut: map[string]int{}}
	for _, entry := range list {
		at := place{d.source, d.number, entry.line}
		text, err := convert(entry.text)
		if err != nil {
			return result{err: errNotAlone}
		}
		if err = r.array(text, at, &got); err != nil {
			return result{err: err}
		}
	}
	return got
}

// array reads the one entry of a JSON array.
func (r reader) array(text []byte, at place, got *result) error {
	text = bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("[")), []byte("]"))
	return r.object(text, header{}, at, got)
}

// yaml reads one YAML document.
func (r reader) yaml(d document) result {
	got := result{leftOut: map[string]int{}}
	at := place{d.source, d.number, d.line}
	text, err := convert(d.text)
	if line, ok := errors.AsType[*lineError](err); ok {
		if at.line = 0; line.line > 0 {
			at.line = d.line + line.line - 1
		}
	}
	if err != nil {
		return result{err: fmt.Errorf("%v: not YAML that can be read: %w", at, err)}
	}
	if err := r.object(text, header{}, at, &got); err != nil {
		return result{err: err}
	}
	return got
}

// json reads JSON values that follow each other, or YAML that only begins like JSON.
func (r reader) json(d document) result {
	got := result{leftOut: map[string]int{}}
	values := json.NewDecoder(bytes.NewReader(d.text))
	for {
		begin := int(values.InputOffset())
		var text json.RawMessage
		err := values.Decode(&text)
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			if asYAML := r.yaml(d); asYAML.err == nil {
				return asYAML
			}
			return result{err: fmt.Errorf("%v: not JSON that can be read: %w", d.at(d.text[:min(errorAt(err, begin), len(d.text))]), err)}
		}
		spaces := len(d.text[begin:]) - len(bytes.TrimLeft(d.text[begin:], " \t\r\n"))
		if err := r.object(text, header{}, d.at(d.text[:begin+spaces]), &got); err != nil {
			return result{err: err}
		}
	}
}

// errorAt is the position of an error of a decoder whose last value began at a position.
func errorAt(err error, begin int) int {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return int(syntax.Offset)
	}
	return begin
}

// at is the place after some of the document's text.
func (d document) at(before []byte) place {
	return place{d.source, d.number, d.line + bytes.Count(before, []byte("\n"))}
}

// object reads an object or a list. inherited is what a list says about entries that do not say it themselves.
func (r reader) object(text []byte, inherited header, at place, got *result) error {
	var is header
	if err := json.Unmarshal(text, &is); err != nil {
		return fmt.Errorf("%v: not an object: %w", at, err)
	}
	if is.Kind == "" && is.APIVersion == "" {
		is.Kind, is.APIVersion = inherited.Kind, inherited.APIVersion
	}
	switch {
	case is.Kind == "" || is.APIVersion == "":
		return fmt.Errorf("%v: not an object: it has no apiVersion and kind", at)
	case is.list():
		entry := header{}
		if is.Kind != "List" {
			entry = header{APIVersion: is.APIVersion, Kind: strings.TrimSuffix(is.Kind, "List")}
		}
		return r.list(is.Items, entry, at, got)
	}
	return r.typed(text, is, at, got)
}

// list reads the entries of a list. inherited is what it says about entries that do not say it themselves.
func (r reader) list(entries []json.RawMessage, inherited header, at place, got *result) error {
	batches := slices.Collect(slices.Chunk(entries, batch))
	results := make([]result, len(batches))
	parallel(len(batches), func(i int) {
		results[i].leftOut = map[string]int{}
		for _, text := range batches[i] {
			if err := r.object(text, inherited, at, &results[i]); err != nil {
				results[i].err = err
				return
			}
		}
	})
	for _, some := range results {
		if some.err != nil {
			return some.err
		}
		got.add(some)
	}
	return nil
}

// typed reads an object of a wanted kind, and counts any other.
func (r reader) typed(text []byte, is header, at place, got *result) error {
	kind := schema.FromAPIVersionAndKind(is.APIVersion, is.Kind)
	if !r.wanted[kind] {
		got.leftOut[kind.GroupKind().String()]++
		return nil
	}
	made, err := newObject(kind)
	if err != nil {
		return fmt.Errorf("%v: %w", at, err)
	}
	if err := kjson.Unmarshal(text, made); err != nil {
		return fmt.Errorf("%v: not a %s: %w", at, is.Kind, err)
	}
	object, ok := made.(metav1.Object)
	if !ok || object.GetName() == "" {
		return fmt.Errorf("%v: this %s has no metadata.name", at, is.Kind)
	}
	complete(object)
	got.objects = append(got.objects, placed{object, is.Kind, at})
	return nil
}

// parallel calls f for each number below n, on all cores.
func parallel(n int, f func(int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// collect puts the results together.
func collect(results []result) (Found, error) {
	sum := result{leftOut: map[string]int{}}
	var errs []error
	for _, r := range results {
		errs = append(errs, r.err)
		sum.add(r)
	}
	found, all := Found{LeftOut: sum.leftOut}, sum.objects
	slices.SortStableFunc(all, placed.compare)
	for i, o := range all {
		if i > 0 && o.compare(all[i-1]) == 0 {
			if !reflect.DeepEqual(o.object, all[i-1].object) {
				errs = append(errs, fmt.Errorf("%v: %s is there before, with other contents, at %v", o.at, o.name(), all[i-1].at))
			}
			continue
		}
		found.Objects = append(found.Objects, o.object)
	}
	return found, errors.Join(errs...)
}

func (p placed) compare(q placed) int {
	if c := strings.Compare(p.kind, q.kind); c != 0 {
		return c
	}
	if c := strings.Compare(p.object.GetNamespace(), q.object.GetNamespace()); c != 0 {
		return c
	}
	return strings.Compare(p.object.GetName(), q.object.GetName())
}

// name is such as Pod shop/api-0.
func (p placed) name() string {
	if p.object.GetNamespace() == "" {
		return p.kind + " " + p.object.GetName()
	}
	return p.kind + " " + p.object.GetNamespace() + "/" + p.object.GetName()
}
