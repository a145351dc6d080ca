package cloudevent

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// HeaderValue encodes s as a header value: printable ASCII except space, quote, and percent sign; other bytes become %XX.
func HeaderValue(s string) string {
	encoded := func(c rune) bool { return c < 0x21 || c > 0x7E || c == '"' || c == '%' }
	if strings.IndexFunc(s, encoded) < 0 {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if encoded(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// percentDecode reverses HeaderValue. A percent sign without two hexadecimal digits is literal, because some publishers do not
// encode it.
func percentDecode(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				c = byte(code)
				i += 2
			}
		}
		b.WriteByte(c)
	}
	if !utf8.ValidString(b.String()) {
		return "", errors.New("not UTF-8")
	}
	return b.String(), nil
}
