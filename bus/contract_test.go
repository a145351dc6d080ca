package bus

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// deadContract is the part of the AsyncAPI document about dead letters and rejections.
type deadContract struct {
	Channels struct {
		DeadLetters struct {
			Address string
			Stream  string `yaml:"x-stream"`
		} `yaml:"deadLetters"`
	}
	Components struct {
		Parameters map[string]struct{ Enum []string }
		Messages   struct {
			DeadLetter struct {
				Headers struct {
					Required   []string
					Properties map[string]struct {
						Pattern   string
						MaxLength int `yaml:"maxLength"`
					}
				}
			} `yaml:"deadLetter"`
			Refusal struct {
				Headers struct {
					Properties map[string]struct{ Pattern string }
				}
			}
		}
	}
}

func readDeadContract(t *testing.T) deadContract {
	t.Helper()
	document, err := schemas.Files.ReadFile("asyncapi.yaml")
	expect.Must(t, err)
	var c deadContract
	expect.Must(t, yaml.Unmarshal(document, &c))
	return c
}

func TestContractDeadLetterHeaders(t *testing.T) {
	headers := readDeadContract(t).Components.Messages.DeadLetter.Headers
	whole := letter{
		Stream: StreamScopes, Subject: "rehome.scope.S.p.node.a", Sequence: 7, Stored: time.Unix(1, 0), Data: make([]byte, 9000),
	}
	of := func(limit int) []string {
		return slices.Sorted(maps.Keys(deadLetter(whole, "my strategy", errors.New("broken"), limit).Header))
	}
	expect.Equal(t, "headers of every letter", of(0), slices.Sorted(slices.Values(headers.Required)))
	expect.Equal(t, "headers of a cut letter", of(8192), slices.Sorted(maps.Keys(headers.Properties)))
	expect.Equal(t, "longest error", headers.Properties[HeaderError].MaxLength, maxErrorText)
	cut := deadLetter(whole, "my strategy", errors.New("broken"), 8192).Header
	for name, h := range headers.Properties {
		if !regexp.MustCompile(h.Pattern).MatchString(cut.Get(name)) {
			t.Errorf("%s is %q, want one that matches %s", name, cut.Get(name), h.Pattern)
		}
	}
}

func TestRejectionHeaders(t *testing.T) {
	headers := readDeadContract(t).Components.Messages.Refusal.Headers.Properties
	expect.Equal(t, "the contract names", slices.Sorted(maps.Keys(headers)), []string{HeaderError, HeaderRetryAfter})
	if !regexp.MustCompile(headers[HeaderRetryAfter].Pattern).MatchString("300") {
		t.Errorf("%s is not seconds by the contract", HeaderRetryAfter)
	}
	_, _, never := readReply(&nats.Msg{Header: nats.Header{HeaderError: {"no such label"}}}, time.Unix(0, 0))
	_, _, later := readReply(&nats.Msg{Header: nats.Header{HeaderError: {"busy"}, HeaderRetryAfter: {"301"}}}, time.Unix(0, 0))
	if !errors.Is(never, schemas.ErrInvalid) || delivery.After(later) != 300*time.Second {
		t.Errorf("got %v and %v, want one that is ErrInvalid, and one that asks for at most 300 seconds", never, later)
	}
}

func TestContractDeadLetterSubject(t *testing.T) {
	c := readDeadContract(t)
	subject := c.Channels.DeadLetters.Address
	for name, value := range map[string]string{"stream": StreamIntents, "reader": schemas.Token("my strategy")} {
		subject = regexp.MustCompile(`\{`+name+`\}`).ReplaceAllString(subject, value)
	}
	got := deadLetter(letter{Stream: StreamIntents}, "my strategy", errors.New("broken"), 0)
	type place struct {
		subject, stream string
		from            []string
		kept            time.Duration
	}
	var kept time.Duration
	for _, s := range (Setup{}).streams() {
		if s.Name == StreamDead {
			kept = s.MaxAge
		}
	}
	is := place{got.Subject, streamOf(got.Subject), []string{StreamScopes, StreamIntents, StreamEvents}, kept}
	want := place{subject, c.Channels.DeadLetters.Stream, c.Components.Parameters["stream"].Enum, 7 * 24 * time.Hour}
	expect.Equal(t, "result", is, want)
}

func TestDeadLetterHeaders(t *testing.T) {
	l := letter{
		Stream: StreamScopes, Subject: "rehome.scope.S.p.node.a", Sequence: 7, Stored: time.Unix(1, 0).UTC(),
		Header: nats.Header{"ce-id": {"1"}, "X-Own": {"kept"}, "Nats-TTL": {"1s"}}, Data: []byte("moin"),
	}
	got := deadLetter(l, "S", errors.New("broken"), 0)
	want := nats.Header{
		"ce-id": {"1"}, "X-Own": {"kept"}, HeaderError: {"broken"}, HeaderSubject: {l.Subject}, HeaderStream: {StreamScopes},
		HeaderSequence: {"7"}, jetstream.MsgIDHeader: {"REHOME_SCOPES|7|1000000000|S"},
	}
	if !reflect.DeepEqual(got.Header, want) || string(got.Data) != "moin" {
		t.Errorf("got  %v %q\nwant %v %q", got.Header, got.Data, want, "moin")
	}
}
