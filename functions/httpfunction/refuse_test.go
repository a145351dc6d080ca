package httpfunction_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/functions/httpfunction"
	"github.com/rehome-dev/rehome/schemas"
)

// most is the size limit in these tests.
const most = 64 << 10

// refusal has the relevant parts of an error response.
type refusal struct {
	status int
	says   string
	header string // "Name: value"
}

func (r reply) refusal() refusal {
	got := refusal{status: r.status, says: strings.TrimSuffix(r.body, "\n")}
	for _, name := range []string{"Allow", "Retry-After", "Accept-Encoding"} {
		if value := r.header.Get(name); value != "" {
			got.header = name + ": " + value
		}
	}
	return got
}

func TestRefusals(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints(), MaxBytes: most})
	s := scope(t, 1)
	s.ID = "e1"
	binary, structured := in(t, "binary", s), in(t, "structured", s)
	changed := func(old, new string) request {
		if !bytes.Contains(structured.body, []byte(old)) {
			t.Fatalf("no %s in %s", old, structured.body)
		}
		return structured.saying(bytes.Replace(structured.body, []byte(old), []byte(new), 1))
	}
	const (
		wants = "; want application/cloudevents+json, application/cloudevents-batch+json, " +
			"or application/json with the attributes in headers that begin with ce-"
		invalid = "read CloudEvent: invalid event: "
		named   = `read CloudEvent "e1": invalid event: `
	)
	for name, c := range map[string]struct {
		request
		want refusal
	}{
		"a form": {
			binary.with("Content-Type", "application/x-www-form-urlencoded"),
			refusal{415, `Content-Type is "application/x-www-form-urlencoded"` + wants, ""},
		},
		"XML":            {binary.with("Content-Type", "text/xml"), refusal{415, `Content-Type is "text/xml"` + wants, ""}},
		"malformed type": {binary.with("Content-Type", "a/b/c"), refusal{415, `Content-Type is "a/b/c"` + wants, ""}},
		"another format of CloudEvents": {
			structured.with("Content-Type", "application/cloudevents+avro"),
			refusal{415, `Content-Type is "application/cloudevents+avro"` + wants, ""},
		},
		"another character set": {
			structured.with("Content-Type", "application/cloudevents+json; charset=latin1"),
			refusal{415, `the character set is "latin1", want utf-8`, ""},
		},
		"another encoding": {
			structured.with("Content-Encoding", "br"),
			refusal{415, `Content-Encoding is "br", want gzip or none`, "Accept-Encoding: gzip"},
		},
		"not gzip despite the header": {
			structured.with("Content-Encoding", "gzip"), refusal{400, "cannot read the body: gzip: invalid header", ""},
		},
		"truncated gzip": {
			structured.with("Content-Encoding", "gzip").saying(zipped(t, s.Data)[:40]),
			refusal{400, "cannot read the body: unexpected EOF", ""},
		},
		"JSON without attributes": {
			request{http.Header{"Content-Type": {"application/json"}}, structured.body},
			refusal{400, "no CloudEvent: there is no header ce-specversion; " +
				"an event that is JSON as a whole has the Content-Type application/cloudevents+json", ""},
		},
		"nothing": {
			request{}, refusal{400, "no CloudEvent: there is no header ce-specversion; " +
				"an event that is JSON as a whole has the Content-Type application/cloudevents+json", ""},
		},
		"another version":             {binary.with("Ce-Specversion", "0.3"), refusal{400, invalid + `specversion is "0.3", want "1.0"`, ""}},
		"another version, structured": {changed(`"specversion":"1.0"`, `"specversion":"0.3"`), refusal{400, invalid + `specversion is "0.3", want "1.0"`, ""}},
		"unknown version": {
			changed(`"specversion":"1.0"`, `"specversion":"9"`),
			refusal{400, invalid + "body is not a CloudEvent: specversion: unknown value: 9", ""},
		},
		"no id":                 {binary.with("Ce-Id", ""), refusal{400, `read CloudEvent "": invalid event: id: MUST be a non-empty string`, ""}},
		"no source":             {binary.with("Ce-Source", ""), refusal{400, named + "source: REQUIRED", ""}},
		"no type":               {binary.with("Ce-Type", ""), refusal{400, named + "type: MUST be a non-empty string", ""}},
		"no id and no type":     {binary.with("Ce-Id", "", "Ce-Type", ""), refusal{400, `read CloudEvent "": invalid event: id: MUST be a non-empty string; type: MUST be a non-empty string`, ""}},
		"no id, structured":     {changed(`"id":"e1",`, ``), refusal{400, `read CloudEvent "": invalid event: id: MUST be a non-empty string`, ""}},
		"malformed time":        {binary.with("Ce-Time", "noon"), refusal{400, invalid + `time: cannot convert "noon" to time.Time: not in RFC3339 format`, ""}},
		"a value not in UTF-8":  {binary.with("Ce-Subject", "%FF"), refusal{400, invalid + "attribute subject: not UTF-8", ""}},
		"no data":               {binary.saying(nil), refusal{400, named + "data is not JSON", ""}},
		"data that is not JSON": {binary.saying([]byte(`{`)), refusal{400, named + "data is not JSON", ""}},
		"half a document":       {structured.saying(structured.body[:99]), refusal{400, invalid + "body is not JSON", ""}},
		"a delta": {
			binary.with("Ce-Type", schemas.DeltaType),
			refusal{400, `event e1: type is "dev.rehome.delta.v1", want "dev.rehome.scope.v1": invalid event`, ""},
		},
		"a scope of another strategy": {
			changed("RemovePodsViolatingNodeTaints", "PodLifeTime"),
			refusal{400, `scope e1 is for "PodLifeTime", not for "RemovePodsViolatingNodeTaints": invalid event`, ""},
		},
		"a scope of another kind": {
			changed(`"kind":"node"`, `"kind":"pod"`),
			refusal{400, `scope e1 is of the kind "pod", and RemovePodsViolatingNodeTaints decides on the kind "node": invalid event`, ""},
		},
		"a scope with a field of another shape": {
			changed(`"pods":[`, `"pods":7,"x":[`),
			refusal{400, "event e1 of type dev.rehome.scope.v1: invalid event: " +
				"json: cannot unmarshal number into Go struct field NodeScope.pods of type []schemas.ScopedPod", ""},
		},
		"arguments that are wrong twice": {
			changed(`"strategy":`, `"args":{"includedTaints":["a*","b=c:d"]},"strategy":`),
			refusal{400, `scope e1: arguments of RemovePodsViolatingNodeTaints: invalid event: ` +
				`includedTaints[0]: can match no taint, got "a*"; write KEY or KEY=VALUE, without an effect or a pattern; ` +
				`includedTaints[1]: can match no taint, got "b=c:d"; write KEY or KEY=VALUE, without an effect or a pattern`, ""},
		},
		"very long type": {
			binary.with("Ce-Type", strings.Repeat("t", 5000)),
			refusal{400, `event e1: type is "` + strings.Repeat("t", 1000-len(`event e1: type is "`)) + "…", ""},
		},
		"batch is an object": {
			in(t, "batched").saying(structured.body),
			refusal{400, "the batch is not a JSON array: invalid event: json: cannot unmarshal object into Go value of type []json.RawMessage", ""},
		},
		"batch is null": {in(t, "batched").saying([]byte("null")), refusal{400, "the batch is not a JSON array: invalid event: it is null", ""}},
		"batch with an invalid event": {
			in(t, "batched").saying([]byte("[" + string(structured.body) + `,{"specversion":"1.0","id":"e2"}]`)),
			refusal{400, `event 1 of the batch: read CloudEvent "e2": invalid event: source: REQUIRED; type: MUST be a non-empty string`, ""},
		},
		"a batch with a scope of another strategy": {
			in(t, "batched").saying([]byte("[" + string(structured.body) + "," +
				strings.Replace(string(structured.body), "RemovePodsViolatingNodeTaints", "Other", 1) + "]")),
			refusal{400, `event 1 of the batch: scope e1 is for "Other", not for "RemovePodsViolatingNodeTaints": invalid event`, ""},
		},
		"one byte over the limit": {
			structured.saying(padded(structured.body, most+1)),
			refusal{413, "the request has more than 65536 bytes, which is the limit", ""},
		},
		"over the limit when decompressed": {
			structured.with("Content-Encoding", "gzip").saying(zipped(t, make([]byte, 100*most))),
			refusal{413, "the request has more than 65536 bytes, which is the limit", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(t, address, c.request).refusal(); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// padded appends spaces up to n bytes.
func padded(document []byte, n int) []byte {
	return append(bytes.Clone(document), bytes.Repeat([]byte(" "), n-len(document))...)
}

func TestMaxBytes(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints(), MaxBytes: most})
	structured := in(t, "structured", scope(t, 1))
	for name, c := range map[string]struct {
		bytes  int
		zipped bool
		status int
	}{
		"all that is allowed":             {most, false, 200},
		"all that is allowed, compressed": {most, true, 200},
		"one more":                        {most + 1, false, 413},
		"one more, compressed":            {most + 1, true, 413},
	} {
		r := structured.saying(padded(structured.body, c.bytes))
		if c.zipped {
			r = r.with("Content-Encoding", "gzip").saying(zipped(t, r.body))
		}
		// A reader without a known length is sent in chunks.
		for sent, body := range map[string]io.Reader{"at once": bytes.NewReader(r.body), "in chunks": io.MultiReader(bytes.NewReader(r.body))} {
			if got := do(t, http.DefaultClient, http.MethodPost, address, r.header, body); got.status != c.status {
				t.Errorf("%s, %s: got %d %s, want %d", name, sent, got.status, got.body, c.status)
			}
		}
	}
}

func TestMethodNotAllowed(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints()})
	for _, method := range []string{"GET", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		got := do(t, http.DefaultClient, method, address, nil, http.NoBody).refusal()
		if want := (refusal{405, "want the method POST, got " + method, "Allow: POST"}); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}
