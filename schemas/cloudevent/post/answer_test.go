package post

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// meaning is the kind of an error.
type meaning struct {
	invalid, unauthorized, unreachable, later bool
	after                                     time.Duration
}

func meaningOf(err error) meaning {
	_, later := errors.AsType[*delivery.Later](err)
	return meaning{
		errors.Is(err, schemas.ErrInvalid), errors.Is(err, delivery.ErrUnauthorized), errors.Is(err, delivery.ErrUnreachable),
		later, delivery.After(err),
	}
}

func TestStatusCodes(t *testing.T) {
	again := map[int]bool{404: true, 408: true, 409: true, 425: true, 429: true}
	nobody := map[int]bool{502: true, 503: true, 504: true}
	for status := 100; status < 600; status++ {
		a := answer{status: status, header: http.Header{"Retry-After": {"7"}}}
		var want meaning
		switch {
		case status >= 200 && status < 300:
		case status == 401 || status == 403:
			want = meaning{unauthorized: true}
		case again[status], status >= 500:
			want = meaning{later: true, after: 7 * time.Second, unreachable: nobody[status]}
		default:
			want = meaning{invalid: true}
		}
		err := verdict(a, nil, now)
		if got := meaningOf(err); got != want {
			t.Errorf("%d: got %+v, want %+v", status, got, want)
		}
		if want != (meaning{}) && !strings.Contains(err.Error(), fmt.Sprintf("status %d", status)) {
			t.Errorf("%d: the error does not name the status: %v", status, err)
		}
	}
}

func TestIncompleteAnswer(t *testing.T) {
	for name, failed := range map[string]error{
		"refused":     errors.New("connection refused"),
		"no such":     errors.New("no such host"),
		"time is out": context.DeadlineExceeded,
	} {
		want := meaning{unreachable: true}
		if got := meaningOf(verdict(answer{status: 200}, failed, now)); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestErrorQuotesAnswer(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"nothing":   {"", "status 400 Bad Request"},
		"lines":     {"scope is\n  not mine\r\n", "status 400 Bad Request: scope is not mine"},
		"no text":   {"a\xff\xfeb", "status 400 Bad Request: ab"},
		"long text": {strings.Repeat("x", 5000), "status 400 Bad Request: " + strings.Repeat("x", mostText) + "…"},
	} {
		if got := (answer{status: 400, body: []byte(c.body)}).say(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got, want := (answer{status: 499}).say(), "status 499"; got != want {
		t.Errorf("a status without a name: got %q, want %q", got, want)
	}
}

func TestAnswerEvents(t *testing.T) {
	binary := http.Header{
		"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/f"}, "Ce-Type": {"t"},
	}
	event := schemas.Event{ID: "1", Source: "/f", Type: "t", Data: []byte(`{"a":1}`)}
	with := func(name, value string) http.Header {
		h := binary.Clone()
		h[name] = []string{value}
		return h
	}
	document := `{"specversion":"1.0","id":"1","source":"/f","type":"t","data":{"a":1}}`
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   schemas.Event
		has    bool
		wrong  bool
	}{
		"binary":                     {binary, `{"a":1}`, event, true, false},
		"binary without type":        {with("Content-Type", ""), `{"a":1}`, event, true, false},
		"structured":                 {http.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}, document, event, true, false},
		"nothing":                    {http.Header{}, " \n", schemas.Event{}, false, false},
		"an empty body of type JSON": {http.Header{"Content-Type": {"application/json"}}, "", schemas.Event{}, false, false},
		"JSON that is no event":      {http.Header{"Content-Type": {"application/json"}}, `{"intents":[]}`, schemas.Event{}, false, true},
		"words":                      {http.Header{"Content-Type": {"text/plain"}}, "OK", schemas.Event{}, false, true},
		"attributes without data":    {binary, "", schemas.Event{}, false, true},
		"an attribute is missing":    {with("Ce-Id", ""), `{}`, schemas.Event{}, false, true},
		"data that is not JSON":      {with("Content-Type", "text/xml"), `<a/>`, schemas.Event{}, false, true},
		"a batch":                    {http.Header{"Content-Type": {"application/cloudevents-batch+json"}}, "[" + document + "]", schemas.Event{}, false, true},
		"another version":            {with("Ce-Specversion", "0.3"), `{}`, schemas.Event{}, false, true},
		"structured, but no JSON":    {http.Header{"Content-Type": {"application/cloudevents+json"}}, "{", schemas.Event{}, false, true},
		"structured, without a body": {http.Header{"Content-Type": {"application/cloudevents+json"}}, "", schemas.Event{}, false, true},
	} {
		got, has, err := answer{status: 200, header: c.header, body: []byte(c.body)}.event()
		if !reflect.DeepEqual(got, c.want) || has != c.has || errors.Is(err, schemas.ErrInvalid) != c.wrong || (err != nil) != c.wrong {
			t.Errorf("%s: got %+v, %v, %v; want %+v, %v, wrong: %v", name, got, has, err, c.want, c.has, c.wrong)
		}
	}
}
