package schemas_test

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

var legalToken = regexp.MustCompile(`^[A-Za-z0-9_=-]+$`)

// untoken decodes a token by the rule in the AsyncAPI document.
func untoken(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		switch c := token[i]; {
		case c == '_':
			b.WriteByte('.')
		case c == '=' && i+2 < len(token):
			decoded, err := hex.DecodeString(token[i+1 : i+3])
			if err != nil {
				return "", err
			}
			b.Write(decoded)
			i += 2
		case c == '=':
			return "", fmt.Errorf("%q ends within an escape", token)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// checkToken fails t unless the token of s is valid in a NATS subject and decodes to s. So no two strings share a token.
func checkToken(t *testing.T, s string) {
	t.Helper()
	token := schemas.Token(s)
	if !legalToken.MatchString(token) {
		t.Errorf("Token(%q) = %q, which is not a legal token", s, token)
	}
	if got, err := untoken(token); err != nil || got != s {
		t.Errorf("Token(%q) = %q, which reads back as %q, %v", s, token, got, err)
	}
	if got, ok := schemas.FromToken(token); !ok || got != s {
		t.Errorf("FromToken(%q) = %q, %v, want %q", token, got, ok, s)
	}
	if back, ok := schemas.FromToken(s); ok && schemas.Token(back) != s {
		t.Errorf("FromToken(%q) = %q, whose token is %q", s, back, schemas.Token(back))
	}
}

func TestTokenKeepsNamesReadable(t *testing.T) {
	for name, want := range map[string]string{
		"":                              "=",
		"worker-7":                      "worker-7",
		"RemovePodsViolatingNodeTaints": "RemovePodsViolatingNodeTaints",
		"ip-10-0-1-12.ec2.internal":     "ip-10-0-1-12_ec2_internal",
		"my profile":                    "my=20profile",
		"a_b":                           "a=5Fb",
		"=":                             "=3D",
		"*":                             "=2A",
		">":                             "=3E",
		"\x00":                          "=00",
		"ü":                             "=C3=BC",
	} {
		if got := schemas.Token(name); got != want {
			t.Errorf("Token(%q) = %q, want %q", name, got, want)
		}
		checkToken(t, name)
	}
}

func TestTokenUniqueness(t *testing.T) {
	random := randtest.New(t)
	// Similar strings, made of bytes that the encoding uses and of other bytes.
	const close = "._=-aA0 25EF*>"
	seen := map[string]string{}
	for range 100_000 {
		b := make([]byte, random.IntN(7))
		for i := range b {
			b[i] = close[random.IntN(len(close))]
			if random.IntN(4) == 0 {
				b[i] = byte(random.Uint32())
			}
		}
		s := string(b)
		checkToken(t, s)
		token := schemas.Token(s)
		if other, taken := seen[token]; taken && other != s {
			t.Fatalf("Token(%q) and Token(%q) are both %q", s, other, token)
		}
		seen[token] = s
	}
}

func FuzzTokenCanBeReadBack(f *testing.F) {
	for _, s := range []string{"", "worker-7", "a.b", "a_b", "=2E", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(checkToken)
}

func TestSubjectUniqueness(t *testing.T) {
	node := schemas.ObjectRef{Kind: "Node", Name: "worker.7"}
	pod := schemas.PodRef{Namespace: "shop", Name: "cart-0", UID: "u1"}
	for _, test := range []struct {
		payload        schemas.Payload
		about, channel string
	}{
		{
			schemas.Delta{Kind: schemas.NodeTaints, Object: node},
			"nodes/worker.7", "rehome.delta.node.taints.worker_7",
		},
		{
			schemas.Delta{Kind: schemas.PodFailed, Object: schemas.ObjectRef{Kind: "Pod", Namespace: "shop", Name: "cart-0"}},
			"namespaces/shop/pods/cart-0", "rehome.delta.pod.failed.shop.cart-0",
		},
		{
			schemas.NodeScope{ScopeHead: schemas.ScopeHead{Kind: "node", Key: "worker.7", Profile: "a b", Strategy: "S"}},
			"node/worker.7", "rehome.scope.S.a=20b.node.worker_7",
		},
		{
			schemas.Intents{Profile: "a b", Strategy: "S", Scope: schemas.ScopeRef{Kind: "node", Key: "worker.7"}},
			"node/worker.7", "rehome.intents.S.a=20b.node.worker_7",
		},
		{
			schemas.Verdict{Outcome: schemas.Deferred, Strategy: "S", Intent: schemas.Intent{Pod: pod}},
			"namespaces/shop/pods/cart-0", "rehome.verdict.deferred.S.shop.cart-0",
		},
		{schemas.Request{Sender: "admin", Name: "one"}, "requests/admin/one", "rehome.request.admin.one"},
		{schemas.Receipt{Sender: "admin", Name: "one"}, "requests/admin/one", "rehome.receipt.admin.one"},
		{schemas.Maintenance{Name: "kernel.6"}, "maintenances/kernel.6", "rehome.maintenance.kernel_6"},
		{schemas.Maintenance{Name: "node/worker.7"}, "maintenances/node/worker.7", "rehome.maintenance.node=2Fworker_7"},
	} {
		if about, channel := test.payload.About(), test.payload.Channel(); about != test.about || channel != test.channel {
			t.Errorf("%T: got %q on %q, want %q on %q", test.payload, about, channel, test.about, test.channel)
		}
	}
}
