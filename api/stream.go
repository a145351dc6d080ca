package api

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/api/review"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
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
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
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

// rights are the rights of the user of a stream. The stream calls refresh before each message.
type rights struct {
	server *Server
	call   call
	access access
	due    *time.Ticker // of the checks
}

// streamRights counts a client of a stream and returns its rights. It refuses users who may see nothing.
func (s *Server) streamRights(ctx context.Context, of *streams) (r *rights, end func(), err error) {
	r = &rights{server: s, call: callOf(ctx)}
	u := r.call.user
	endRead, err := s.readTurn(ctx)
	if err != nil {
		return nil, nil, err
	}
	r.access, err = s.access(ctx, u)
	endRead()
	if err != nil {
		return nil, nil, err
	}
	if r.access.none() {
		return nil, nil, serve.Refuse(http.StatusForbidden, "user %.200s may get neither nodes nor pods in any namespace", u.Username)
	}
	end, err = of.begin(u)
	return r, end, err
}

// begin starts the ticker of the checks.
func (r *rights) begin() *time.Ticker {
	r.due = time.NewTicker(recheckEvery)
	return r.due
}

// refresh calls check if the last check is recheckEvery ago.
func (r *rights) refresh(ctx context.Context) error {
	select {
	case <-r.due.C:
		return r.check(ctx)
	default:
		return nil
	}
}

// check reads the rights again. It returns errRights if they have changed, and errGone if the token is no longer valid or the
// user may see nothing. While the API server does not answer, the last rights hold.
func (r *rights) check(ctx context.Context) error {
	u, err := r.call.user, error(nil)
	if !u.operator {
		u, err = r.server.userOf(ctx, r.call.header)
	}
	if errors.Is(err, review.ErrUnknownToken) {
		return errGone
	}
	if err != nil {
		return nil //nolint:nilerr // the last rights hold
	}
	now, err := r.server.access(ctx, u)
	if err != nil {
		return nil //nolint:nilerr // the last rights hold
	}
	if now.none() {
		return errGone
	}
	before := r.access
	r.call.user, r.access = u, now
	if !reflect.DeepEqual(before, now) {
		return errRights
	}
	return nil
}
