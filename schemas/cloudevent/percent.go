package cloudevent

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// HeaderValue writes s as the value of a header: printable ASCII but for space, quote and percent sign, all else as %XX.
func HeaderValue(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = plainByte(s[i])
	}
	if plain {
		return s
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); i++ {
		if c := s[i]; plainByte(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

func plainByte(c byte) bool { return 0x21 <= c && c <= 0x7E && c != '"' && c != '%' }

// percentDecode reverses HeaderValue. A percent sign that two hexadecimal digits do not follow stands for itself, as
// publishers that do not encode write it.
func percentDecode(s string) (string, error) {
	if strings.IndexByte(s, '%') >= 0 {
		var b strings.Builder
		b.Grow(len(s))
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) && hex(s[i+1]) >= 0 && hex(s[i+2]) >= 0 {
				b.WriteByte(byte(hex(s[i+1])<<4 | hex(s[i+2])))
				i += 2
			} else {
				b.WriteByte(s[i])
			}
		}
		s = b.String()
	}
	if !utf8.ValidString(s) {
		return "", errors.New("not UTF-8")
	}
	return s, nil
}

// hex is the value of a hexadecimal digit, and -1 for any other byte.
func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
