package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

func TestForwardNotifications(t *testing.T) {
	b := busOf(t)
	bodies := make(chan string, 10)
	var posts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if posts.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		bodies <- r.Header.Get("Content-Type") + " " + string(body)
	}))
	defer server.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{"url": server.URL + "/secret\n", "template": `{{json .Title}}`} {
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	var events []schemas.Event
	for _, id := range []string{"a", "b", "c"} {
		e := verdictEvent(t, id, schemas.Evicted, "shop", "pod-"+id)
		e.CorrelationID = "taint"
		events = append(events, e)
	}
	publishAll(t, b, append(events, verdictEvent(t, "d", schemas.Evicted, "other", "pod-d"))...)
	stop := forwarding(t, b, "--to", "slack", "--url-file", filepath.Join(dir, "url"), "--template", filepath.Join(dir, "template"),
		"--quiet", "100ms", "-n", "shop")
	if got, want := <-bodies, `application/json "test: 3 pods moved on node worker-1"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	publishAll(t, b, verdictEvent(t, "e", schemas.Evicted, "shop", "pod-e"))
	done(t, b)
	stop() // sends pending messages
	close(bodies)
	var rest []string
	for body := range bodies {
		rest = append(rest, body)
	}
	if want := []string{`application/json "test: 1 pod moved on node worker-1"`}; !reflect.DeepEqual(rest, want) {
		t.Errorf("got %q, want %q", rest, want)
	}
}

// TestForwardRefusedNotification sends a message that the service never takes, and then one that it takes.
func TestForwardRefusedNotification(t *testing.T) {
	for _, c := range []struct {
		status, posts int
		reason        string // in /readyz
	}{
		{http.StatusBadRequest, 1, "post to the URL of slack: invalid event: status 400 Bad Request: no such block\n"},
		{http.StatusInternalServerError, 2, "post to the URL of slack: try again: status 500 Internal Server Error: no such block\n"},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			b := busOf(t)
			const refused, accepted = `"test: request ops/bad finished (Done)"`, `"test: request ops/good finished (Done)"`
			bodies := make(chan string, 10)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if string(body) == refused {
					http.Error(w, "no such block", c.status)
				}
				bodies <- string(body)
			}))
			defer server.Close()
			address := expect.Value(t, program.FreeAddress)
			stop := forwarding(t, b, "--to", "slack", "--url-file", filetest.New(t, "url", server.URL),
				"--template", filetest.New(t, "template", `{{json .Title}}`), "--quiet", "1ms", "--tries", "2", "--http-address", address)
			defer stop()
			var got []string
			for _, name := range []string{"bad", "good"} {
				publishAll(t, b, eventOf(t, name, schemas.Receipt{
					Sender: "ops", Name: name, State: schemas.RequestFinished, Reason: schemas.ReceiptDone, Action: schemas.ActionEvaluate,
				}))
				status, posts := http.StatusServiceUnavailable, c.posts
				if name == "good" {
					status, posts = http.StatusOK, 1
				}
				for range posts {
					got = append(got, <-bodies)
				}
				got = append(got, until(t, "http://"+address+"/readyz", status))
			}
			for line := range strings.Lines(until(t, "http://"+address+"/metrics", http.StatusOK)) {
				if value, ok := strings.CutPrefix(line, "rehome_forward_events_total"); ok {
					got = append(got, value)
				}
			}
			want := slices.Concat(slices.Repeat([]string{refused}, c.posts), []string{
				c.reason, accepted, "ok\n", fmt.Sprintf("{result=\"again\"} %d\n", c.posts-1), "{result=\"delivered\"} 1\n", "{result=\"refused\"} 1\n",
			})
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestForwardNotificationFlags(t *testing.T) {
	empty := filetest.New(t, "empty", "")
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"--to", "slack"}, "--to slack: want --url-file, a file with the URL of the service, got none"},
		{[]string{"--to", "slack", "--url-file", empty}, `--url-file: want a file with the URL of the service, got "` + empty + `" without any`},
		{[]string{"--to", "http://127.0.0.1:1", "--url-file", empty},
			`--url-file and --template: want them with --to slack, teams, webhook, got "http://127.0.0.1:1"`},
		{[]string{"--to", "teams", "--url-file", empty, "--quiet", "0s"}, "--quiet: want a duration such as 10s, got 0s"},
	} {
		if _, err := execute(t, append([]string{"forward"}, c.arguments...)...); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.arguments, err, c.want)
		}
	}
}
