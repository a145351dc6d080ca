package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

var legalSubject = regexp.MustCompile(`^rehome(\.[A-Za-z0-9_=-]+)+$`)

// FuzzDecode checks that any data is either invalid, or can be encoded and decoded again and has a valid subject on one NATS
// subject without wildcards.
func FuzzDecode(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add(e.Event.Type, []byte(e.Event.Data))
		f.Add(e.Event.Type, []byte(`{"kind":["`+e.Event.Type+`"],"key":null}`))
	}
	f.Add(schemas.ScopeType, []byte(`{"kind":"usage","args":{"a":"<\u2028>"},"now":"9999-12-31T23:59:59-23:00","key":"a *.>"}`))
	f.Add(schemas.IntentsType, []byte(`{"intents":[{"pod":{"uid":"\ud800"}},null],"Intents":[],"scope":null}`))
	f.Add(schemas.DeltaType, []byte(`{"kind":".. *","object":{"namespace":"\r\n","name":">"},"after":{"allocatable":{"cpu":"1e3"}}}`))
	f.Fuzz(func(t *testing.T, eventType string, data []byte) {
		e := schemas.Event{ID: "1", Source: "/fuzz", Type: eventType, Data: data}
		p, err := schemas.DecodePayload(e)
		if err != nil {
			if !errors.Is(err, schemas.ErrInvalid) {
				t.Fatalf("error is not ErrInvalid: %v", err)
			}
			return
		}
		again, err := schemas.NewEvent("/fuzz", p, time.Time{}, schemas.Event{})
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", p, err)
		}
		second, err := schemas.DecodePayload(again)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v", again.Data, err)
		}
		written, err := json.Marshal(second)
		if err != nil || !bytes.Equal(written, again.Data) {
			t.Errorf("written as\n%s\nand after reading it, %v:\n%s", again.Data, err, written)
		}
		if _, delta := p.(schemas.Delta); !delta && !legalSubject.MatchString(p.Channel()) { // a delta kind is not encoded
			t.Errorf("the NATS subject is %q", p.Channel())
		}
		if scope, ok := second.(schemas.Scope); ok {
			one, err := schemas.DecodeScope(again, scope.Head().Kind)
			if err != nil || len(one.ScopedPods()) != len(scope.ScopedPods()) {
				t.Errorf("as a scope of any kind it has the pods %v, %v; want %v", one, err, scope.ScopedPods())
			}
		}
	})
}

var (
	traceContext = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	noTrace      = strings.Repeat("0", 32)
)

// FuzzTraceParent checks that an event has a valid trace context, whatever its cause has, and continues the trace of a valid one.
func FuzzTraceParent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("00-" + noTrace + "-00f067aa0ba902b7-01")
	f.Add("00-a" + strings.Repeat("ä", 25) + "1")
	f.Add("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, parent string) {
		e, err := schemas.NewEvent("/fuzz", schemas.Receipt{}, time.Time{}, schemas.Event{ID: "1", TraceParent: parent})
		expect.Must(t, err)
		trace, follows := e.TraceParent[3:35], traceContext.MatchString(parent)
		if !traceContext.MatchString(e.TraceParent) || trace == noTrace || follows && trace != parent[3:35] && parent[3:35] != noTrace {
			t.Errorf("after %q it is %q", parent, e.TraceParent)
		}
	})
}

// FuzzMarkOn checks that the annotation of a node is not valid, or names the UID of a maintenance and is read back as it was written.
func FuzzMarkOn(f *testing.F) {
	f.Add(`{"name":"kernel","uid":"u","cordonedBefore":true,"at":"2026-03-04T05:06:07Z"}`)
	f.Add(`{"uid":"\ud800","at":"9999-12-31T23:59:59-23:00"}`)
	f.Add(`{"name":"a","UID":"u","cordonedBefore":1}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		mark := schemas.MarkOn(marked(text))
		if mark == nil {
			return
		}
		written, err := json.Marshal(mark)
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", mark, err)
		}
		again := schemas.MarkOn(marked(string(written)))
		if again == nil || mark.UID == "" || !again.At.Equal(mark.At) {
			t.Fatalf("%s was read as %+v, and then as %+v", text, mark, again)
		}
		if again.At = mark.At; !reflect.DeepEqual(again, mark) {
			t.Errorf("%s was read as %+v, and then as %+v", text, mark, again)
		}
	})
}

func marked(text string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{schemas.AnnotationMaintenance: text}}}
}
