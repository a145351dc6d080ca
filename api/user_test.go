package api

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/rehome-dev/rehome/schemas"
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
