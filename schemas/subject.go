package schemas

import "strings"

// Prefix is the first token of every NATS subject of Rehome.
const Prefix = "rehome"

// Token writes s as one token of a NATS subject, readable for names that Kubernetes allows: a dot becomes an
// underscore, which no Kubernetes name contains. Every other byte outside A-Z a-z 0-9 - becomes = and two hexadecimal
// digits, and the empty string becomes "=", so that different strings are different tokens.
func Token(s string) string {
	if s == "" {
		return "="
	}
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = plainByte(s[i])
	}
	if plain {
		return s
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case plainByte(c):
			b.WriteByte(c)
		case c == '.':
			b.WriteByte('_')
		default:
			b.WriteByte('=')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

func plainByte(c byte) bool {
	return c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// channel joins the prefix, fixed words and names to a NATS subject. Words are written as they are; names go through
// [Token].
func channel(words string, names ...string) string {
	var b strings.Builder
	b.WriteString(Prefix)
	b.WriteByte('.')
	b.WriteString(words)
	for _, n := range names {
		b.WriteByte('.')
		b.WriteString(Token(n))
	}
	return b.String()
}
