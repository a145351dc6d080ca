package schemas

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Token encodes s as one token of a NATS subject. Names of Kubernetes stay readable: a dot becomes an underscore, which they
// never contain. Every other byte outside of A-Z a-z 0-9 - becomes = and two hexadecimal digits, and the empty string becomes
// "=", so different strings have different tokens.
func Token(s string) string {
	if s == "" {
		return "="
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case plain(rune(c)):
			b.WriteByte(c)
		case c == '.':
			b.WriteByte('_')
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// FromToken decodes a token of [Token]. ok is false for any other token.
func FromToken(token string) (s string, ok bool) {
	if token == "=" {
		return "", true
	}
	text := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		switch c := token[i]; {
		case plain(rune(c)):
			text = append(text, c)
		case c == '_':
			text = append(text, '.')
		case c == '=' && i+2 < len(token):
			b, err := hex.DecodeString(token[i+1 : i+3])
			if err != nil {
				return "", false
			}
			text = append(text, b[0])
			i += 2
		default:
			return "", false
		}
	}
	return string(text), token != "" && Token(string(text)) == token
}

func plain(c rune) bool {
	return c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// channel joins the prefix, words, and names to a NATS subject. It encodes names with [Token].
func channel(words string, names ...string) string {
	tokens := []string{Prefix, words}
	for _, n := range names {
		tokens = append(tokens, Token(n))
	}
	return strings.Join(tokens, ".")
}
