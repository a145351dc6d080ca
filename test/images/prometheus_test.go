package images

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// prometheusVersion returns the release of the server that is built for tests. Release v3.Y.Z is the Go module
// v0.3YY.Z.
func prometheusVersion(t *testing.T) string {
	t.Helper()
	v := required(t, "test/tools/prometheus", "github.com/prometheus/prometheus")
	m := regexp.MustCompile(`^v0\.(\d)0?(\d+)\.(\d+)$`).FindStringSubmatch(v)
	if m == nil {
		t.Fatalf("Prometheus is built from %q, and no release has that module", v)
	}
	return "v" + strings.Join(m[1:], ".")
}

func TestPrometheusVersionsMatch(t *testing.T) {
	const module = "github.com/prometheus/prometheus"
	if a, b := required(t, "test/tools/prometheus", module), required(t, "test/monitoring", module); a != b {
		t.Errorf("test/tools/prometheus has %s, test/monitoring has %s", a, b)
	}
}

// ask sends a request to the API of Prometheus and decodes the data of the response.
func (s *scene) ask(path string, data any) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %.300s", path, response.Status, text)
	}
	answer := struct{ Data any }{data}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s: %w: %.300s", path, err, text)
	}
	return nil
}

// targets returns what Prometheus scrapes: component and address, and how it went.
func (s *scene) targets() (map[string]string, error) {
	var data struct {
		ActiveTargets []struct {
			Labels            map[string]string
			Health, LastError string
		}
	}
	if err := s.ask("/api/v1/targets", &data); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, target := range data.ActiveTargets {
		all[target.Labels["component"]+" "+target.Labels["instance"]] = strings.TrimSpace(target.Health + " " + target.LastError)
	}
	return all, nil
}

// query makes a question of an expression. The answers are values by the label.
func (s *scene) query(by, expression string) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		var data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any // when, and how much, in words
			}
		}
		if err := s.ask("/api/v1/query?query="+url.QueryEscape(expression), &data); err != nil {
			return nil, err
		}
		all := map[string]string{}
		for _, r := range data.Result {
			all[r.Metric[by]] = fmt.Sprint(r.Value[1])
		}
		return all, nil
	}
}

// scraped waits until Prometheus has what every role serves after the drain.
func (s *scene) scraped() {
	s.t.Helper()
	s.becomes("Prometheus reaches every role", s.targets, map[string]string{
		"watcher 127.0.0.1:8642": "up", "actuator 127.0.0.1:8644": "up", "functions 127.0.0.1:8645": "up", "dispatcher 127.0.0.1:8646": "up",
	})
	s.becomes("it has figures of every role", s.query("component", "sum by (component) (rehome_ready)"), map[string]string{
		"watcher": "1", "actuator": "1", "maintenance": "1", "functions": "1", "dispatcher": "1",
	})
	s.becomes("it counts the pods that were moved, in their namespace",
		s.query("namespace", `sum by (namespace) (rehome_verdicts_total{outcome="evicted"})`), map[string]string{"shop": "4"})
}

// becomes waits until a question is answered as it should be, for six times as long as Prometheus waits between two scrapes.
func (s *scene) becomes(what string, ask func() (map[string]string, error), want map[string]string) {
	s.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		got, err := ask()
		took := time.Since(began)
		if err == nil && reflect.DeepEqual(got, want) {
			s.t.Logf("%s, after %v: %v", what, took.Round(time.Millisecond), got)
			return
		}
		if took > 30*time.Second {
			logs, _ := s.docker("compose", "logs", "--no-color", "--tail", "40", "prometheus")
			s.t.Fatalf("%s: not after %v: got %v, %v, want %v\n%s", what, took, got, err, want, logs)
		}
	}
}
