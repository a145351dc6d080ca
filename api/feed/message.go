package feed

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
)

// Message is a server-sent event. Its clients share it.
type Message struct {
	Text []byte // the text of the message

	once   sync.Once
	packed []byte
}

// NewMessage returns a message with JSON data, which has no line breaks.
func NewMessage(event string, data []byte) *Message {
	text := make([]byte, 0, len(data)+len(event)+16)
	text = append(append(append(text, "event: "...), event...), "\ndata: "...)
	return &Message{Text: append(append(text, data...), "\n\n"...)}
}

// NewEvent returns a message with an ID and without a name.
func NewEvent(id uint64, data []byte) *Message {
	return &Message{Text: fmt.Appendf(nil, "id: %d\ndata: %s\n\n", id, data)}
}

// compressors are reused, because each has large tables.
var compressors = sync.Pool{New: func() any { //nolint:gochecknoglobals // all messages share them
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	return w
}}

// Packed returns the text as deflate blocks that end at a byte boundary and are independent of earlier data, so they can follow
// any other blocks.
func (m *Message) Packed() []byte {
	m.once.Do(func() {
		var packed bytes.Buffer
		w := compressors.Get().(*flate.Writer)
		w.Reset(&packed)
		_, _ = w.Write(m.Text) // a buffer has no errors
		_ = w.Flush()
		compressors.Put(w)
		m.packed = packed.Bytes()
	})
	return m.packed
}

// batch collects rows for messages.
type batch struct {
	event      string
	rows, gone []byte
	count      int
	messages   []*Message
}

func (b *batch) add(row func([]byte) []byte) {
	b.rows = row(comma(b.rows))
	b.grew()
}

func (b *batch) drop(key string) {
	b.gone = appendString(comma(b.gone), key)
	b.grew()
}

func comma(list []byte) []byte {
	if len(list) == 0 {
		return list
	}
	return append(list, ',')
}

func (b *batch) grew() {
	if b.count++; b.count == mostRows {
		b.flush()
	}
}

func (b *batch) flush() {
	if b.count == 0 {
		return
	}
	text := make([]byte, 0, len(b.rows)+len(b.gone)+32)
	text = append(append(append(text, `{"rows":[`...), b.rows...), `],"gone":[`...)
	text = append(append(text, b.gone...), "]}"...)
	b.messages = append(b.messages, NewMessage(b.event, text))
	b.rows, b.gone, b.count = b.rows[:0], b.gone[:0], 0
}

// end returns the messages.
func (b *batch) end() []*Message {
	b.flush()
	return b.messages
}

func (p PodRow) appendJSON(to []byte) []byte {
	to = append(to, '[')
	for _, s := range []string{p.UID, p.Namespace, p.Name, p.Node, p.Workload, p.Phase} {
		to = append(appendString(to, s), ',')
	}
	to = append(strconv.AppendInt(to, int64(p.Flags), 10), ',')
	return append(strconv.AppendInt(to, p.Created, 10), ']')
}

func (n NodeRow) appendJSON(to []byte) []byte {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // it has only strings, numbers, and a time
	}
	return append(to, text...)
}

// appendString appends a string as JSON. Names of objects need no escapes.
func appendString(to []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // a string has no errors
			return append(to, text...)
		}
	}
	return append(append(append(to, '"'), s...), '"')
}
