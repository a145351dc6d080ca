package requests

import (
	"testing"

	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestNoStrategy(t *testing.T) {
	for _, c := range []struct{ name, profile, strategy, want string }{
		{"a_strategy", "", "Foo", `the policy has no strategy "Foo"`},
		{"a_strategy_of_a_profile", "web", "Foo", `profile "web" has no strategy "Foo"`},
		{"a_profile", "web", "", `profile "web" has no strategy`},
		{"all", "", "", "the policy has no strategy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := &request.End{Reason: schemas.ReceiptPolicyUnknown, Message: c.want}
			expect.Equal(t, "end", noStrategy(schemas.Request{Profile: c.profile, Strategy: c.strategy}), want)
		})
	}
}
