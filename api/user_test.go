package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestRequester(t *testing.T) {
	long := strings.Repeat("ä", schemas.MaxRequester)
	for name, c := range map[string]struct {
		username string
		operator bool
		want     string
	}{
		"operator":              {"operator", true, "operator"},
		"a user named operator": {"operator", false, "operator~06e55b633481f7bb"},
		"the longest name":      {long, false, long},
		"a longer name":         {long + "a", false, strings.Repeat("ä", schemas.MaxRequester-17) + "~fc988230bf55dc3d"},
		"another longer name":   {long + "b", false, strings.Repeat("ä", schemas.MaxRequester-17) + "~4d49caf9ee2f3736"},
	} {
		t.Run(name, func(t *testing.T) {
			u := user{authenticationv1.UserInfo{Username: c.username}, c.operator}
			if got := u.requester(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestLimitsOfOperator has a user named operator who reaches each limit. The operator at the loopback address does not share them.
func TestLimitsOfOperator(t *testing.T) {
	namesake := user{UserInfo: authenticationv1.UserInfo{Username: operatorName}}
	operator := user{UserInfo: authenticationv1.UserInfo{Username: operatorName}, operator: true}
	s := offline(t, nil, func() policy.Policy { return policy.Policy{} })
	code := func(err error) int {
		refusal, ok := errors.AsType[*serve.Refusal](err)
		if !ok {
			return 0
		}
		return refusal.Status
	}
	for name, c := range map[string]struct {
		limit int
		ask   func(user) error
		want  int // for the operator
	}{
		"requests": {perMinute, func(u user) error {
			header := http.Header{"Content-Type": {cloudevent.StructuredJSON}}
			_, err := s.postRequest(withCall(t.Context(), call{user: u, header: header}), &postInput{})
			return err
		}, http.StatusBadRequest},
		"streams": {mostUserStreams, func(u user) error { _, err := s.watches.begin(u); return err }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for range c.limit {
				_ = c.ask(namesake)
			}
			expect.Equal(t, "status of the user and the operator", []int{code(c.ask(namesake)), code(c.ask(operator))},
				[]int{http.StatusTooManyRequests, c.want})
		})
	}
}
