package act

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/apitest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// apiOf returns the loopback address of an API with a bus of its own. answer has the consequences of a request.
func apiOf(t *testing.T, answer func(schemas.Request) []schemas.Payload) (http.Handler, *bus.Bus) {
	t.Helper()
	s, b := apitest.New(t)
	expect.Background(t, s.Run)
	bustest.AnswerRequests(t, b, answer)
	return s.Operator(), b
}

// lostAPI serves the first API until the command has shown the text until, and then the second one.
type lostAPI struct {
	bytes.Buffer
	until   string
	current atomic.Pointer[http.Handler]
	change  func()
}

func (l *lostAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*l.current.Load()).ServeHTTP(w, r)
}

// Write is the output of the command.
func (l *lostAPI) Write(b []byte) (int, error) {
	if strings.Contains(string(b), l.until) {
		l.change()
	}
	return l.Buffer.Write(b)
}

func TestRequestAfterLostBus(t *testing.T) {
	usual := repeatEvery
	repeatEvery = 100 * time.Millisecond
	defer func() { repeatEvery = usual }()
	receipt := func(r schemas.Request, state schemas.ReceiptState, reason schemas.ReceiptReason) schemas.Receipt {
		return schemas.Receipt{Sender: r.Sender, Name: r.Name, State: state, Reason: reason, Message: "so it is", Action: r.Action}
	}
	verdict := func(outcome schemas.Outcome, reason schemas.ReasonCode) schemas.Verdict {
		return schemas.Verdict{
			Outcome: outcome, Reason: reason, Message: "because", Profile: "p", Strategy: schemas.RequestStrategy,
			Scope:  schemas.ScopeRef{Kind: schemas.RequestKind, Key: "http/r"},
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: "a", UID: "u"}, Node: "n1", Reason: "fan"},
		}
	}
	first, _ := apiOf(t, func(r schemas.Request) []schemas.Payload {
		return []schemas.Payload{
			receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted), verdict(schemas.Deferred, schemas.ReasonDisruptionBudget),
		}
	})
	second, b := apiOf(t, func(r schemas.Request) []schemas.Payload {
		end := verdict(schemas.Settled, schemas.ReasonReplaced)
		end.Settlement = &schemas.Settlement{Replacement: &schemas.PodRef{Namespace: "shop", Name: "b", UID: "v"}, Node: "n2", Seconds: 3}
		return []schemas.Payload{
			receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted), verdict(schemas.Evicted, schemas.ReasonEvictionAccepted), end,
			receipt(r, schemas.RequestFinished, schemas.ReceiptDone),
		}
	})
	bustest.Publish(t, b, bustest.Event(t, verdict(schemas.Evicted, schemas.ReasonEvictionAccepted))) // of another request
	l := &lostAPI{until: "deferred"}
	l.current.Store(&first)
	web := httptest.NewServer(l)
	defer web.Close()
	l.change = sync.OnceFunc(func() {
		l.current.Store(&second)
		web.CloseClientConnections()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := moveCommand()
	c.SetArgs([]string{"node", "n1", "--reason", "fan", "--name", "r", "--server", web.URL})
	c.SetOut(l)
	c.SetErr(&bytes.Buffer{})
	err := c.ExecuteContext(ctx)
	_, got, _ := strings.Cut(l.String(), "\n\n")
	const want = "NAMESPACE   POD   WAS ON   RESULT\nshop        a     n1       Replaced after 3.0s: b on n2\n\nrequest http/r finished: Done: so it is\n"
	if err != nil || got != want {
		t.Errorf("error %v; got\n%s\nwant at the end\n%s", err, l, want)
	}
}
