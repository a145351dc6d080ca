package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// large returns data of at least n bytes that is as repetitive as a list of pods.
func large(n int) json.RawMessage {
	var text strings.Builder
	text.WriteString("[0")
	for i := 0; text.Len() < n; i++ {
		fmt.Fprintf(&text, `,{"name":"web-%d","labels":{"app":"web"}}`, i)
	}
	text.WriteString("]")
	return json.RawMessage(text.String())
}

func TestCompressionRoundTrip(t *testing.T) {
	for _, c := range []struct {
		name       string
		data       json.RawMessage
		compressed bool
	}{
		{"data of 256 KiB is sent uncompressed", json.RawMessage(`"` + strings.Repeat("x", compressAbove-2) + `"`), false},
		{"more than that is compressed", large(compressAbove + 1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := full
			want.Data = c.data
			m, err := encode(want, compressAbove)
			expect.Must(t, err)
			expect.Equal(t, "compressed", m.Header.Get(encodingHeader) == gzipEncoding, c.compressed)
			if c.compressed && len(m.Data) > len(want.Data)/5 {
				t.Errorf("%d bytes are sent of %d, want at most a fifth", len(m.Data), len(want.Data))
			}
			got, err := decode(m.Header, m.Data, maxData)
			expect.Must(t, err)
			if !reflect.DeepEqual(got, want) {
				t.Error("the event reads back differently")
			}
		})
	}
}

func TestInvalidCompressedData(t *testing.T) {
	bomb, err := compress(make([]byte, maxData+1))
	expect.Must(t, err)
	good, err := compress([]byte(`{}`))
	expect.Must(t, err)
	for _, c := range []struct {
		name, encoding string
		body           []byte
		want           string
	}{
		{"another encoding", "br", []byte(`{}`), `read CloudEvent: invalid event: content encoding "br" is unknown, want gzip`},
		{"not compressed", "gzip", []byte(`{}`), "read CloudEvent: invalid event: data is not compressed with gzip: unexpected EOF"},
		{"cut off", "gzip", good[:len(good)-3], "read CloudEvent: invalid event: data is not compressed with gzip: unexpected EOF"},
		{"too much", "gzip", bomb, "read CloudEvent: invalid event: compressed data has more than 64 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"a"}, "ce-type": {"t"}, "content-encoding": {c.encoding}}
			_, err := decode(h, c.body, maxData)
			if !errors.Is(err, schemas.ErrInvalid) || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestDataSizeLimit(t *testing.T) {
	of := func(size int) schemas.Event {
		e := full
		e.Data = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
		return e
	}
	if m, err := encode(of(maxData), compressAbove); err != nil {
		t.Errorf("64 MiB: %v, want a message", err)
	} else if _, err := decode(m.Header, m.Data, maxData); err != nil {
		t.Errorf("64 MiB: %v, want that it reads back", err)
	}
	_, err := encode(of(maxData+1), compressAbove)
	want := fmt.Sprintf("write event %q: invalid event: its data has more than 64 MiB", full.ID)
	if !errors.Is(err, schemas.ErrInvalid) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
