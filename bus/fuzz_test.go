package bus

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestForeignSubjectHead(t *testing.T) {
	for _, subject := range []string{"S.default.node.worker-1", "other.intents.S.default.node", "rehome.verdict.S.default.node.a"} {
		if h, ok := headOf(subject); ok {
			t.Errorf("%s was read as %+v", subject, h)
		}
	}
}

// Any subject is either not a subject of answers, or it is the subject of the answer to the scope that it names.
func FuzzHeadOf(f *testing.F) {
	f.Add("rehome.intents.RemovePodsViolatingNodeTaints.default.node.worker-7_example")
	f.Add("rehome.intents.A.=.pod.shop=2Fcart-0")
	f.Add("A.default.node.worker-7")
	f.Add("rehome.intents.=2e.=2.=.>")
	f.Fuzz(func(t *testing.T, subject string) {
		h, ok := headOf(subject)
		if !ok {
			return
		}
		a := schemas.Intents{Profile: h.Profile, Strategy: h.Strategy, Scope: schemas.ScopeRef{Kind: h.Kind, Key: h.Key}}
		if got := a.Channel(); got != subject && h.Channel() != subject {
			t.Errorf("%q was read as %+v, whose subject is %q", subject, h, got)
		}
	})
}

// The dead letter of any message has its source, its error, and the message, cut if it is too large. Only a complete letter may
// be published again, on its original channel.
func FuzzDeadLetter(f *testing.F) {
	f.Add("rehome.scope.A.default.node.x", "ce-id", "1", "no data\nat all", "A", uint64(7), []byte(`{}`))
	f.Add("rehome.scope.A.default.node.x", "x", strings.Repeat("x", 16<<10), "", "A", uint64(7), []byte(`{}`))
	f.Add("rehome.intents.A.default.node.x", "Nats-Rollup", "all", "", "rehome", uint64(0), []byte{})
	f.Add("rehome.verdict.>", "rehome-sequence", "9", strings.Repeat("x", 5000), "a.b c", uint64(1<<63), make([]byte, 20000))
	f.Fuzz(func(t *testing.T, subject, name, value, why, by string, sequence uint64, body []byte) {
		l := letter{
			Stream: streamOf(subject), Subject: subject, Sequence: sequence, Stored: time.Unix(0, 7), Data: body,
			Header: nats.Header{name: {value}},
		}
		const most = 16 << 10
		m := deadLetter(l, by, errors.New(why), most)
		if size := size(m); size > most && len(subject) < 1024 && len(by) < 256 {
			t.Errorf("the letter has %d bytes, want at most %d", size, most)
		}
		got := deadLetterOf(&letter{Subject: m.Subject, Sequence: 3, Header: m.Header, Data: m.Data})
		want := DeadLetter{
			Number: 3, By: by, Error: line(why, maxErrorText), Stream: l.Stream, Sequence: sequence, Channel: subject,
			Header: map[string][]string{}, Body: body, Buried: time.Time{},
		}
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, "rehome-"), strings.HasPrefix(lower, "nats-"):
		case len(name)+len(value) < most/2, m.Header.Get(HeaderHeadersTruncated) == "":
			maps.Copy(want.Header, l.Header)
		default:
			want.HeadersCut = 1
		}
		if len(m.Data) < len(body) {
			want.Body, want.WholeSize = body[:len(m.Data)], len(body)
		}
		expect.Equal(t, "result", got, want)
		if got.retriable() != nil {
			return
		}
		if p := got.message(); p.Subject != subject || len(p.Data) != len(body) || strings.ContainsAny(p.Subject, " \t\r\n*>") {
			t.Errorf("it would be published again as %+v", p)
		}
	})
}

// Any message that a participant stores among the dead letters is read without a panic, and can be published again only on a
// subject of the stream in the subject of the letter.
func FuzzForgedLetter(f *testing.F) {
	f.Add("rehome.dead.REHOME_SCOPES.A", "rehome.scope.A.default.node.x", StreamScopes, "7", "0", []byte(`{}`))
	f.Add("rehome.dead", "$JS.API.STREAM.PURGE.REHOME_EVENTS", StreamEvents, "-1", "", []byte{})
	f.Add("rehome.dead..=", "rehome.delta.*", StreamEvents, "99999999999999999999", "9x", []byte(nil))
	f.Fuzz(func(t *testing.T, on, channel, stream, sequence, cut string, body []byte) {
		d := deadLetterOf(&letter{Subject: on, Sequence: 1, Data: body, Header: nats.Header{
			HeaderSubject: {channel}, HeaderStream: {stream}, HeaderSequence: {sequence}, HeaderTruncated: {cut},
		}})
		if _, err := d.Event(); err != nil && !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("error is not ErrInvalid: %v", err)
		}
		if err := d.retriable(); err != nil {
			if !errors.Is(err, schemas.ErrInvalid) && !errors.Is(err, ErrCut) {
				t.Errorf("error is neither ErrInvalid nor ErrCut: %v", err)
			}
			return
		}
		of, isLetter := strings.CutPrefix(on, deadSubject(streamOf(d.message().Subject), ""))
		if m := d.message(); !isLetter || of == "" || streamOf(m.Subject) == StreamDead || !strings.HasPrefix(m.Subject, "rehome.") {
			t.Errorf("the letter on %q would be published on %q", on, m.Subject)
		}
	})
}

// Any reply of a function on the bus is either empty, a delay, invalid, or an event that can be written and read unchanged.
func FuzzReply(f *testing.F) {
	m, err := encode(full, compressAbove)
	expect.Must(f, err)
	f.Add("", "", "", m.Header["ce-id"][0], []byte(full.Data))
	f.Add("busy\nnow", "30", "", "", []byte{})
	f.Add("", "", "400", "", []byte("no"))
	f.Add("", "-1", "", "\xff", []byte(`{"specversion":"1.0","id":"1","source":"a","type":"t","data":{}}`))
	f.Fuzz(func(t *testing.T, why, after, service, id string, body []byte) {
		reply := &nats.Msg{Data: body, Header: nats.Header{
			HeaderError: {why}, HeaderRetryAfter: {after}, headerServiceError: {service},
		}}
		if id != "" {
			maps.Copy(reply.Header, nats.Header{"ce-specversion": {"1.0"}, "ce-id": {id}, "ce-source": {"/f"}, "ce-type": {"t"}})
		}
		e, has, err := readReply(reply, time.Unix(0, 0))
		later, put := errors.AsType[*delivery.Later](err)
		switch {
		case put && (later.After < 0 || has), err != nil && !put && !errors.Is(err, schemas.ErrInvalid), err != nil && has:
			t.Errorf("got %+v, %v, %v", e, has, err)
		case err == nil && has:
			if err := readsBack(e); err != nil {
				t.Error(err)
			}
		}
	})
}

// Any value under a key of the table of maintenances is either invalid, or a maintenance with the name of the key that can be
// written and read unchanged.
func FuzzMaintenance(f *testing.F) {
	key := schemas.Token(schemas.RequestedMaintenance("worker-7"))
	f.Add(key, []byte(`{"metadata":{"name":"node/worker-7","uid":"u"},"spec":{"nodeSelector":{},"stage":"Drain"}}`), uint64(7))
	f.Add(key, []byte(`{"metadata":{"name":"node/worker-8"}}`), uint64(0))
	f.Add("=", []byte(`{"metadata":{"name":"","annotations":{"\ud800":"\u0000"}},"status":{"nodes":[null]}}`), uint64(1<<63))
	f.Add("a.>", []byte(`null`), uint64(1))
	f.Fuzz(func(t *testing.T, key string, value []byte, version uint64) {
		is, err := maintenanceOf(key, value, version)
		if err != nil {
			if !errors.Is(err, schemas.ErrInvalid) || is != nil {
				t.Fatalf("got %+v, %v", is, err)
			}
			return
		}
		if name, ok := schemas.FromToken(key); !ok || name != is.Name || schemas.Token(is.Name) != key {
			t.Errorf("the key %q has the maintenance %q", key, is.Name)
		}
		written, err := json.Marshal(is)
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", is, err)
		}
		again, err := maintenanceOf(key, written, version)
		if err != nil {
			t.Fatalf("%s was read, and written as %s, which is not read: %v", value, written, err)
		}
		second, err := json.Marshal(again)
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", again, err)
		}
		// The first writing drops empty lists and fractions of seconds. The second one must change nothing.
		if third, err := maintenanceOf(key, second, version); err != nil || !reflect.DeepEqual(third, again) {
			t.Errorf("error %v\ngot  %+v\nwant %+v", err, third, again)
		}
	})
}
