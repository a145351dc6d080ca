package schemas

import (
	"bytes"
	"slices"
)

// DecodeHead reads what a scope of any kind begins with, as [Decode] does for a [ScopeHead], in a fraction of the time:
// what else the scope has is skipped. So it does not notice what is no JSON there; what came as a CloudEvent is JSON.
func DecodeHead(e Event) (ScopeHead, error) {
	if e.Type == ScopeType {
		e.Data = headOf(e.Data)
	}
	return Decode[ScopeHead](e)
}

// headOf is a JSON object without those members that a head certainly does not have, or all of data where it is not
// plainly an object. Names that json would take for others, being in upper case or escaped, stay.
func headOf(data []byte) []byte {
	s := scanner{data: data}
	if !s.take('{') {
		return data
	}
	head := make([]byte, 1, 1024)
	head[0] = '{'
	for {
		from := s.at
		name, ok := s.name()
		if !ok || !s.value() {
			return data
		}
		if !skipped(name) {
			head = append(append(head, data[from:s.at]...), ',')
		}
		if !s.take(',') {
			break
		}
	}
	if !s.take('}') || s.space() < len(data) {
		return data
	}
	if len(head) == 1 {
		return append(head, '}')
	}
	head[len(head)-1] = '}' // in place of the last comma
	return head
}

// skipped says whether a member of that name is of no use to a [ScopeHead].
func skipped(name []byte) bool {
	other := func(c byte) bool { return c < 'a' || c > 'z' }
	fields := []string{"kind", "key", "profile", "strategy", "args", "now", "since", "causes"}
	return len(name) > 0 && !slices.ContainsFunc(name, other) && !slices.Contains(fields, string(name))
}

// scanner goes over JSON that is known to be correct. On anything else it ends somewhere, and never beyond the end.
type scanner struct {
	data []byte
	at   int
}

// space goes to what follows white space, and says where that is.
func (s *scanner) space() int {
	for s.at < len(s.data) && bytes.IndexByte([]byte(" \t\r\n"), s.data[s.at]) >= 0 {
		s.at++
	}
	return s.at
}

// take goes beyond c, if that is what follows.
func (s *scanner) take(c byte) bool {
	if s.space() == len(s.data) || s.data[s.at] != c {
		return false
	}
	s.at++
	return true
}

// name goes beyond the name of a member and its colon, and returns the name as it is written.
func (s *scanner) name() (name []byte, ok bool) {
	if !s.take('"') {
		return nil, false
	}
	from := s.at
	if !s.text() {
		return nil, false
	}
	return s.data[from : s.at-1], s.take(':')
}

// text goes beyond the end of a string that has begun.
func (s *scanner) text() bool {
	for {
		n := bytes.IndexByte(s.data[s.at:], '"')
		if n < 0 {
			return false
		}
		end := s.at + n
		escapes := 0
		for end-escapes > s.at && s.data[end-escapes-1] == '\\' {
			escapes++
		}
		if s.at = end + 1; escapes%2 == 0 {
			return true
		}
	}
}

// value goes beyond a value.
func (s *scanner) value() bool {
	for depth, from := 0, s.space(); s.at < len(s.data); {
		switch c := s.data[s.at]; c {
		case '"':
			s.at++
			if !s.text() {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 0 {
				return s.at > from
			}
			if c == ',' {
				break
			}
			if depth--; depth == 0 {
				s.at++
				return true
			}
		}
		s.at++
	}
	return false
}
