package load

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// For any answer of a Prometheus server, the source must return an error, or a percentage from 0 to 100 for each node.
func FuzzPrometheus(f *testing.F) {
	for _, value := range []string{`"0.5"`, `"NaN"`, `"-1"`, `"1e12"`, `"+Inf"`, `7`, `null`} {
		f.Add(http.StatusOK, []byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"n"},"value":[1,`+value+`]}]}}`))
	}
	f.Add(http.StatusBadGateway, []byte(`<html>`))
	f.Add(http.StatusOK, []byte(`{"status":"error","error":"moin"}`))
	f.Fuzz(func(t *testing.T, status int, data []byte) {
		all, err := vector(data, status)
		if err != nil {
			return
		}
		percentages, wrong := nodePercentages(all)
		if len(percentages)+len(wrong) > len(all) {
			t.Errorf("%d series gave %v and %v", len(all), percentages, wrong)
		}
		for name, percent := range percentages {
			if name == "" || percent < 0 || percent > 100 {
				t.Errorf("node %q has %d percent", name, percent)
			}
		}
	})
}

// For any answer of the metrics API, the source must return an error, or no negative usage and no sample without
// expiry.
func FuzzKubernetes(f *testing.F) {
	for _, cpu := range []string{"250m", "-5", "1e12", "1e999", "0", "NaN"} {
		usage := `{"cpu":"` + cpu + `","memory":"1Gi"}`
		f.Add([]byte(`{"items":[{"metadata":{"name":"n","namespace":"a"},"timestamp":"2026-03-04T05:06:07Z","window":"30s","usage":` + usage +
			`,"containers":[{"usage":` + usage + `},{"usage":` + usage + `}]}]}`))
	}
	f.Add([]byte(`{"items":[{"metadata":{"name":"n"},"window":"999999h","usage":{"cpu":"1","memory":"1"}},null]}`))
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	f.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	expect.Must(f, err)
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	k := Kubernetes{Client: client.RESTClient(), Now: func() time.Time { return now }}
	check := func(t *testing.T, name string, used corev1.ResourceList) {
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, schemas.LoadMetric} {
			if q := used[r]; q.Sign() < 0 {
				t.Errorf("%s uses %s of %s", name, q.String(), r)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		body = data
		nodes, _ := k.Nodes(context.Background())
		for name, sample := range nodes {
			check(t, name, sample.Used)
			if sample.Good.After(now.Add(maxAge + mostWindow)) {
				t.Errorf("%s: the sample is good until %v", name, sample.Good)
			}
		}
		pods, _ := k.Pods(context.Background())
		for name, used := range pods {
			check(t, name.String(), used)
		}
	})
}
