package schemas

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Prefix is the first token of every NATS subject of Rehome.
const Prefix = "rehome"

// Subjects lists the NATS subjects that events of a type are published on, with what stands for a name in capitals, each
// such name written by [Token]. nil: there is no such type.
func Subjects(eventType string) []string {
	switch eventType {
	case DeltaType:
		return []string{Prefix + ".delta.node.ASPECT.NAME", Prefix + ".delta.pod.ASPECT.NAMESPACE.NAME"}
	case ScopeType:
		return []string{Prefix + ".scope.STRATEGY.PROFILE.KIND.KEY"}
	case IntentsType:
		return []string{Prefix + ".intents.STRATEGY.PROFILE.KIND.KEY"}
	case VerdictType:
		return []string{Prefix + ".verdict.OUTCOME.STRATEGY.NAMESPACE.POD"}
	case RequestType:
		return []string{Prefix + ".request.SENDER.NAME"}
	case ReceiptType:
		return []string{Prefix + ".receipt.SENDER.NAME"}
	case MaintenanceType:
		return []string{Prefix + ".maintenance.NAME"}
	}
	return nil
}

// Token writes s as one token of a NATS subject, readable for names that Kubernetes allows: a dot becomes an
// underscore, which no Kubernetes name contains. Every other byte outside A-Z a-z 0-9 - becomes = and two hexadecimal
// digits, and the empty string becomes "=", so that different strings are different tokens.
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

// FromToken reads back what [Token] wrote. ok is false for what Token does not write.
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

// channel joins the prefix, fixed words, and names to a NATS subject. Names go through [Token].
func channel(words string, names ...string) string {
	tokens := []string{Prefix, words}
	for _, n := range names {
		tokens = append(tokens, Token(n))
	}
	return strings.Join(tokens, ".")
}
