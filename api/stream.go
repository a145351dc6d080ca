package api

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"net/http"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/api/feed"
)

const (
	// pingEvery is the interval of comments on a stream. They let both sides detect a lost connection.
	pingEvery = 15 * time.Second
	// writeTimeout limits the delivery of one message to a client.
	writeTimeout = 20 * time.Second
	// recheckEvery is the time between two checks of the rights of the user of a stream.
	recheckEvery = 10 * time.Second
)

// stream writes server-sent events. Its methods return errors when the client is gone.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	packed  bool   // it is one gzip stream of [feed.Message.Packed]
	sum     uint32 // of the text so far
	size    uint32
}

// newStream begins a stream.
func newStream(w http.ResponseWriter, accepted http.Header) (*stream, error) {
	s := &stream{w: w, control: http.NewResponseController(w), packed: acceptsGzip(accepted)}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Accel-Buffering", "no") // of proxies
	// The server sets both for whole requests.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	if !s.packed {
		return s, s.write([]byte(": ping\n\n"))
	}
	h.Set("Content-Encoding", "gzip")
	if err := s.write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}); err != nil {
		return nil, err
	}
	return s, s.send(ping())
}

func ping() *feed.Message { return &feed.Message{Text: []byte(": ping\n\n")} }

// acceptsGzip reports whether a client reads gzip.
func acceptsGzip(h http.Header) bool {
	for _, part := range strings.Split(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, quality, _ := strings.Cut(part, ";")
		if strings.TrimSpace(coding) == "gzip" {
			return strings.Trim(strings.TrimPrefix(strings.TrimSpace(quality), "q="), "0.") != "" || quality == ""
		}
	}
	return false
}

func (s *stream) write(text []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}

// send writes a message.
func (s *stream) send(m *feed.Message) error {
	if !s.packed {
		return s.write(m.Text)
	}
	s.sum, s.size = crc32.Update(s.sum, crc32.IEEETable, m.Text), s.size+uint32(len(m.Text))
	return s.write(m.Packed())
}

// tell writes a value as a message.
func (s *stream) tell(event string, value any) error {
	m, err := message(event, value)
	if err != nil {
		return err
	}
	return s.send(m)
}

// end completes the stream, so clients do not treat it as broken.
func (s *stream) end() {
	if s.packed {
		trailer := binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0xff, 0xff}, s.sum) // an empty last block
		_ = s.write(binary.LittleEndian.AppendUint32(trailer, s.size))                  // the client may be gone
	}
}

func message(event string, value any) (*feed.Message, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return feed.NewMessage(event, text), nil
}
