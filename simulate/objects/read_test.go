package objects

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

func nodesAndPods() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{{Version: "v1", Kind: "Node"}, {Version: "v1", Kind: "Pod"}}
}

// summary returns a line for each object.
func summary(found Found) []string {
	var all []string
	for _, o := range found.Objects {
		switch o := o.(type) {
		case *corev1.Pod:
			all = append(all, fmt.Sprintf("pod %s/%s %s on %s", o.Namespace, o.Name, o.UID, o.Spec.NodeName))
		case *corev1.Node:
			all = append(all, fmt.Sprintf("node %s %s", o.Name, o.UID))
		}
	}
	return all
}

const (
	podA  = "pod shop/a u-a on n1"
	nodeN = "node n1 u-n"
)

func TestRead(t *testing.T) {
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, uid: u-n}\n"
	const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop", "uid": "u-a"}, "spec": {"nodeName": "n1"}}`
	both := []string{nodeN, podA}
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"one document", node, []string{nodeN}},
		{"documents", node + "---\n" + pod + "\n", both},
		{"markers at both ends, comments and empty documents", "# c\n---\n# d\n---\n" + node + "--- # e\n" + pod + "\n...\n---\n", both},
		{"a directive", "%YAML 1.2\n---\n" + node, []string{nodeN}},
		{"JSON values that follow each other", pod + "\n" + `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u-n"}}`, both},
		{"YAML that begins like JSON", "{apiVersion: v1, kind: Node, metadata: {name: n1, uid: u-n}}\n", []string{nodeN}},
		{"a list in JSON", `{"apiVersion": "v1", "kind": "List", "items": [` + pod + `]}`, []string{podA}},
		{"typed list without kinds of its entries", `{"apiVersion": "v1", "kind": "PodList", "items": [
			{"metadata": {"name": "a", "namespace": "shop", "uid": "u-a"}, "spec": {"nodeName": "n1"}}]}`, []string{podA}},
		{"a list in a list", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": [` + pod + `]}]}`, []string{podA}},
		{"a list in blocks", "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n    uid: u-n\n- " + pod + "\nkind: List\n", both},
		{"a list in indented blocks", "kind: List\napiVersion: v1\nitems:\n\n  # c\n  - apiVersion: v1\n    kind: Node\n    metadata:\n      name: n1\n      uid: u-n\n\n  - " + pod + "\n", both},
		{"list that begins with its entries", "items:\n- " + pod + "\nkind: List\napiVersion: v1\n", []string{podA}},
		{"list with anchors", "apiVersion: v1\nkind: List\nitems:\n- &p " + pod + "\n- *p\n", []string{podA}},
		{"a merge", "apiVersion: v1\nkind: Node\nmetadata: {<<: &m {name: n1}, uid: u-n}\n", []string{nodeN}},
		{"an empty list", "apiVersion: v1\nkind: List\nitems: []\n", nil},
		{"an empty list in JSON", `{"apiVersion": "v1", "kind": "List", "items": []}`, nil},
		{"no UIDs and no namespace", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n", []string{
			"node a 8bd91de0-6dc0-ec5a-ba1d-2f50a5ded644", "pod default/a a35e61ec-44aa-2c59-2842-045806167094 on ",
		}},
		{"the same object twice", node + "---\n" + node, []string{nodeN}},
		{"a byte order mark and carriage returns", "\ufeff" + strings.ReplaceAll(node, "\n", "\r\n"), []string{nodeN}},
		{"nothing", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := Read([]Source{{Name: "x.yaml", Data: []byte(c.text)}}, nodesAndPods())
			if got := summary(found); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("error %v\ngot  %q\nwant %q", err, got, c.want)
			}
		})
	}
}

func TestReadWithoutNamespace(t *testing.T) {
	var kinds []schema.GroupVersionKind
	var text, got, want []string
	for apiVersion, namespaces := range map[string]map[string]string{ // by kind
		"v1": {
			"Pod": "default", "PersistentVolumeClaim": "default", "Node": "", "Namespace": "", "PersistentVolume": "",
		},
		"policy/v1":            {"PodDisruptionBudget": "default"},
		"scheduling.k8s.io/v1": {"PriorityClass": ""},
		"storage.k8s.io/v1": {
			"CSIStorageCapacity": "default", "StorageClass": "", "CSINode": "", "CSIDriver": "", "VolumeAttachment": "",
		},
		"metrics.k8s.io/v1beta1": {"PodMetrics": "default", "NodeMetrics": ""},
	} {
		for kind, namespace := range namespaces {
			kinds = append(kinds, schema.FromAPIVersionAndKind(apiVersion, kind))
			text = append(text, "apiVersion: "+apiVersion+"\nkind: "+kind+"\nmetadata: {name: x}\n")
			want = append(want, kind+" in "+namespace)
		}
	}
	found, err := Read([]Source{{Data: []byte(strings.Join(text, "---\n"))}}, kinds)
	for _, o := range found.Objects {
		got = append(got, reflect.TypeOf(o).Elem().Name()+" in "+o.GetNamespace())
	}
	if slices.Sort(want); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %q\nwant %q", err, got, want)
	}
}

func TestReadCountsOtherKinds(t *testing.T) {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: example.com/v1\nkind: Widget\n---\n" +
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n- apiVersion: v2\n  kind: Pod\n"
	found, err := Read([]Source{{Data: []byte(text)}}, nodesAndPods())
	want := Found{LeftOut: map[string]int{"ConfigMap": 2, "Widget.example.com": 1, "Pod": 1}}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("got %+v, error %v\nwant %+v", found, err, want)
	}
}

func TestReadErrors(t *testing.T) {
	const good = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\n"
	const list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n"
	for _, c := range []struct{ name, text, want string }{
		{"YAML", good + "a: b\nc: \"d\n", "x.yaml:7: document 2: invalid YAML: found unexpected end of stream"},
		{"an entry of a list", list + "- apiVersion: v1\n  kind: [\n", "x.yaml:9: document 1: invalid YAML: did not find expected node content"},
		{"JSON", good + "{\"apiVersion\": \"v1\",\n \"kind\" \"Pod\"}", "x.yaml:6: document 2: invalid JSON: invalid character '\"' after object key"},
		{"text", good + "hello\n", "x.yaml:5: document 2: not an object: json: cannot unmarshal string into Go value of type objects.header"},
		{"no kind", good + "metadata: {name: a}\n", "x.yaml:5: document 2: not an object: no apiVersion and kind"},
		{"no name", good + "apiVersion: v1\nkind: Pod\n", "x.yaml:5: document 2: Pod without metadata.name"},
		{"a field of the wrong type", list + "- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n  spec:\n    containers: none\n",
			"x.yaml:8: document 1: not a Pod: json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"},
		{"an object with two contents", good + "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {a: b}}\n",
			"x.yaml:5: document 2: Node n1 differs from the same object at x.yaml:1: document 1"},
		{"aliases that grow", "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + grow(9), "x.yaml: document 1: invalid YAML: document contains excessive aliasing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read([]Source{{Name: "x.yaml", Data: []byte(c.text)}}, nodesAndPods())
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// grow returns a document where each line expands to ten times the previous one.
func grow(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "%c: &%[1]c [%s]\n", 'b'+i, strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 10))
	}
	return b.String()
}

func TestReadInAnyOrder(t *testing.T) {
	random := randtest.New(t)
	var texts []string
	for i := range 300 {
		texts = append(texts, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: p%d\n  namespace: n%d\n", i, i%7))
	}
	read := func() Found {
		at := random.IntN(len(texts))
		found, err := Read([]Source{
			{Name: "a", Data: []byte(strings.Join(texts[:at], "---\n"))}, {Name: "b", Data: []byte(strings.Join(texts[at:], "---\n"))},
		}, nodesAndPods())
		expect.Must(t, err)
		return found
	}
	want := read()
	if len(want.Objects) != len(texts) {
		t.Fatalf("%d objects, want %d", len(want.Objects), len(texts))
	}
	for range 20 {
		random.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
		if got := read(); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %q\nwant %q", summary(got), summary(want))
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.json", "sub/c.yml", "notes.txt"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		filetest.Write(t, file, name)
	}
	sources, err := Open([]string{StandardInput, dir, filepath.Join(dir, "notes.txt")}, strings.NewReader("in"))
	var got []string
	for _, s := range sources {
		got = append(got, filepath.Base(s.Name)+"="+string(s.Data))
	}
	want := []string{"stdin=in", "a.json=a.json", "b.yaml=b.yaml", "c.yml=sub/c.yml", "notes.txt=notes.txt"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %q, error %v\nwant %q", got, err, want)
	}
	empty := t.TempDir()
	if _, err := Open([]string{empty}, nil); err == nil || err.Error() != empty+": no .yaml, .yml, or .json file in this directory" {
		t.Errorf("got error %v", err)
	}
}

func TestReadLongLists(t *testing.T) {
	var yamlText, jsonText strings.Builder
	jsonText.WriteString(`{"apiVersion":"v1","kind":"List","items":[`)
	yamlText.WriteString("apiVersion: v1\nitems:\n")
	var want []metav1.Object
	for i := range 200 {
		fmt.Fprintf(&yamlText, "- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n%03d\n    uid: u\n", i)
		if i > 0 {
			jsonText.WriteString(",")
		}
		fmt.Fprintf(&jsonText, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n%03d","uid":"u"}}`, i)
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		n.Name, n.UID = fmt.Sprintf("n%03d", i), "u"
		want = append(want, n)
	}
	jsonText.WriteString("]}")
	yamlText.WriteString("kind: List\n")
	for _, text := range []string{yamlText.String(), jsonText.String()} {
		found, err := Read([]Source{{Data: []byte(text)}}, nodesAndPods())
		if err != nil || !reflect.DeepEqual(found.Objects, want) {
			t.Errorf("got %q, error %v", summary(found), err)
		}
	}
}
