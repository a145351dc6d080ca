// Package objects reads Kubernetes objects from text: output of kubectl, or files written by hand.
//
//	source.go   Open     files, directories, and standard input
//	split.go    split    a text into documents, and the list that kubectl prints into its entries
//	read.go     Read     documents into typed objects, in parallel
//	metrics.go           NodeMetrics and PodMetrics
//
// A text is any mixture of YAML documents and JSON values. Each is one object or a list of objects.
package objects

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Found is the result of Read.
type Found struct {
	// Objects have the wanted kinds. They are pointers to types of k8s.io/api, or to [NodeMetrics] and [PodMetrics], sorted by
	// kind, namespace, and name. Duplicates with the same content are removed.
	Objects []metav1.Object
	// LeftOut is the number of other objects by kind, such as ConfigMap or Widget.example.com.
	LeftOut map[string]int
}

// Read reads the objects of the wanted kinds. It ignores unknown fields and expands lists. Pods and nodes without a UID get one
// that derives from the name, and a namespaced object without a namespace is in default, so objects can be written by hand.
//
// The error joins one error per unreadable document, and one per object that appears twice with different content. The order of
// sources and documents does not change the result.
func Read(sources []Source, wanted []schema.GroupVersionKind) (Found, error) {
	var all []document
	for _, s := range sources {
		all = append(all, split(s)...)
	}
	read, failed := parallel(all, func(d document) ([]object, error) { return d.read(wanted) })
	found, err := collect(slices.Concat(read...))
	return found, errors.Join(append(failed, err)...)
}

// parallel calls read for each document on all cores.
func parallel(all []document, read func(document) ([]object, error)) (results [][]object, failed []error) {
	results, failed = make([][]object, len(all)), make([]error, len(all))
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i, d := range all {
		work.Go(func() error {
			results[i], failed[i] = read(d)
			return nil
		})
	}
	_ = work.Wait() // errors are in failed
	return results, failed
}

// object is an object with its location.
type object struct {
	metav1.Object // nil means of an unwanted kind
	kind          schema.GroupVersionKind
	at            place
}

type place struct {
	source         string
	document, line int // line 0 is unknown
}

func (p place) String() string {
	if p.line > 0 {
		return fmt.Sprintf("%s:%d: document %d", p.source, p.line, p.document)
	}
	return fmt.Sprintf("%s: document %d", p.source, p.document)
}

var yamlLine = regexp.MustCompile(`yaml: (?:line (\d+): )?(.*)`)

// read reads a document: the entries of a list one by one if possible, otherwise JSON values or one YAML document.
func (d document) read(wanted []schema.GroupVersionKind) ([]object, error) {
	entries, head := d.entries()
	if entries == nil {
		return d.values(wanted)
	}
	read, failed := parallel(entries, func(entry document) ([]object, error) { return entry.values(wanted, head) })
	for _, err := range failed {
		if err == nil {
			continue
		}
		if whole, wholeErr := d.values(wanted); wholeErr == nil { // the entry uses an anchor of another one
			return whole, nil
		}
		return nil, err
	}
	return slices.Concat(read...), nil
}

// values reads the JSON values or the YAML of a document. inherited applies to objects without a kind.
func (d document) values(wanted []schema.GroupVersionKind, inherited ...header) ([]object, error) {
	var found []object
	if yaml.IsJSONBuffer(d.text) {
		values := json.NewDecoder(bytes.NewReader(d.text))
		for {
			begin := int(values.InputOffset())
			begin += len(d.text[begin:]) - len(bytes.TrimLeft(d.text[begin:], " \t\r\n"))
			var value json.RawMessage
			err := values.Decode(&value)
			if errors.Is(err, io.EOF) {
				return found, nil
			}
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				begin = int(syntax.Offset)
			}
			at := place{d.source, d.number, d.line + bytes.Count(d.text[:min(begin, len(d.text))], []byte("\n"))}
			if err != nil {
				if len(found) == 0 { // YAML may begin like JSON
					if text, yamlErr := yamlToJSON(d.text); yamlErr == nil {
						return decode(text, at, wanted, inherited...)
					}
				}
				return nil, fmt.Errorf("%v: invalid JSON: %w", at, err)
			}
			objects, err := decode(value, at, wanted, inherited...)
			if err != nil {
				return nil, err
			}
			found = append(found, objects...)
		}
	}
	at := place{d.source, d.number, d.line}
	text, err := yamlToJSON(d.text)
	if err != nil {
		at.line = 0
		message := err.Error()
		if match := yamlLine.FindStringSubmatch(message); match != nil {
			if line, err := strconv.Atoi(match[1]); err == nil {
				at.line = d.line + line - 1
			}
			message = match[2]
		}
		return nil, fmt.Errorf("%v: invalid YAML: %s", at, message)
	}
	return decode(text, at, wanted, inherited...)
}

// yamlToJSON converts YAML, including YAML that begins like JSON.
func yamlToJSON(text []byte) (converted json.RawMessage, err error) {
	return converted, yaml.Unmarshal(text, &converted)
}

// header has the kind of an object, and the entries of a list.
type header struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

func (h header) isList() bool { return strings.HasSuffix(h.Kind, "List") && h.Items != nil }

// entry returns the kind of entries without a kind.
func (h header) entry() header {
	if h.Kind == "List" {
		return header{}
	}
	return header{APIVersion: h.APIVersion, Kind: strings.TrimSuffix(h.Kind, "List")}
}

// decode decodes an object or a list. inherited is the kind of objects without a kind.
func decode(text []byte, at place, wanted []schema.GroupVersionKind, inherited ...header) ([]object, error) {
	var h header
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("%v: not an object: %w", at, err)
	}
	if h.Kind == "" && h.APIVersion == "" && len(inherited) > 0 {
		h.Kind, h.APIVersion = inherited[0].Kind, inherited[0].APIVersion
	}
	if h.Kind == "" || h.APIVersion == "" {
		return nil, fmt.Errorf("%v: not an object: no apiVersion and kind", at)
	}
	if h.isList() {
		var found []object
		for _, text := range h.Items {
			objects, err := decode(text, at, wanted, h.entry())
			if err != nil {
				return nil, err
			}
			found = append(found, objects...)
		}
		return found, nil
	}
	kind := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	if !slices.Contains(wanted, kind) {
		return []object{{kind: kind}}, nil
	}
	made, err := newObject(kind)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", at, err)
	}
	if err := kjson.Unmarshal(text, made); err != nil {
		return nil, fmt.Errorf("%v: not a %s: %w", at, h.Kind, err)
	}
	o, ok := made.(metav1.Object)
	if !ok || o.GetName() == "" {
		return nil, fmt.Errorf("%v: %s without metadata.name", at, h.Kind)
	}
	complete(o, h.Kind)
	return []object{{o, kind, at}}, nil
}

// complete sets the namespace of namespaced objects, and the UID of pods and nodes, which the API server would set.
func complete(o metav1.Object, kind string) {
	switch o.(type) {
	case *corev1.Pod, *corev1.PersistentVolumeClaim, *policyv1.PodDisruptionBudget, *storagev1.CSIStorageCapacity, *PodMetrics:
		o.SetNamespace(cmp.Or(o.GetNamespace(), metav1.NamespaceDefault))
	}
	switch o.(type) {
	case *corev1.Pod, *corev1.Node:
	default:
		return
	}
	if o.GetUID() == "" {
		sum := sha256.Sum256([]byte(kind + "/" + o.GetNamespace() + "/" + o.GetName()))
		o.SetUID(types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])))
	}
}

// collect counts the objects of other kinds, sorts the rest, and removes duplicates.
func collect(all []object) (Found, error) {
	found := Found{LeftOut: map[string]int{}}
	all = slices.DeleteFunc(all, func(o object) bool {
		if o.Object == nil {
			found.LeftOut[o.kind.GroupKind().String()]++
		}
		return o.Object == nil
	})
	slices.SortStableFunc(all, object.compare)
	var failed []error
	for i, o := range all {
		if i == 0 || o.compare(all[i-1]) != 0 {
			found.Objects = append(found.Objects, o.Object)
		} else if !reflect.DeepEqual(o.Object, all[i-1].Object) {
			name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
			failed = append(failed, fmt.Errorf("%v: %s %s differs from the same object at %v", o.at, o.kind.Kind, name, all[i-1].at))
		}
	}
	return found, errors.Join(failed...)
}

func (o object) compare(p object) int {
	return cmp.Or(strings.Compare(o.kind.Kind, p.kind.Kind), strings.Compare(o.GetNamespace(), p.GetNamespace()),
		strings.Compare(o.GetName(), p.GetName()))
}
