package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/schemas"
)

// answer is how Prometheus answers a query.
type answer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// series is one element of a vector.
type series struct {
	Metric map[string]string `json:"metric"`
	// Value is a time, and the value as text. It is missing for a histogram.
	Value []json.RawMessage `json:"value"`
}

// vector reads an answer. Any other result is an error.
func vector(data []byte) ([]series, error) {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("the answer is not that of a Prometheus server: %w", err)
	}
	switch {
	case a.Status == "error":
		return nil, errors.New(a.Error)
	case a.Status != "success":
		return nil, fmt.Errorf("the answer is not that of a Prometheus server: its status is %q", a.Status)
	case a.Data.Type != "vector":
		return nil, fmt.Errorf("the result is a %s; want a vector, with one figure for each node", a.Data.Type)
	}
	var all []series
	if err := json.Unmarshal(a.Data.Result, &all); err != nil {
		return nil, fmt.Errorf("the answer is not that of a Prometheus server: %w", err)
	}
	return all, nil
}

// shares are the percentages of the nodes by name, and by name what is wrong with the others. The empty name stands for
// series without one.
func shares(all []series) (percents map[string]int64, odd map[string]string) {
	percents, odd = map[string]int64{}, map[string]string{}
	for _, s := range all {
		name := s.Metric["instance"]
		_, twice := percents[name]
		percent, wrong := s.percent()
		switch {
		case name == "":
			odd[""] = "a figure without the label instance, which has to be the name of the node"
		case twice || odd[name] != "":
			odd[name] = "more than one figure"
			delete(percents, name)
		case wrong != "":
			odd[name] = wrong
		default:
			percents[name] = percent
		}
	}
	return percents, odd
}

// percent is the value from 0 to 1 in whole percent, or what is wrong with it.
func (s series) percent() (percent int64, wrong string) {
	text, wrong := s.text()
	if wrong != "" {
		return 0, wrong
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value >= 0 && value <= 1) { // written so that NaN is wrong, too
		return 0, fmt.Sprintf("the value %s; want one from 0 to 1", text)
	}
	return int64(value * 100), ""
}

// value is the value, whatever it is.
func (s series) value() (float64, error) {
	text, wrong := s.text()
	if wrong != "" {
		return 0, errors.New("the answer has " + wrong)
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("the answer has the value %q, which is no number", text)
	}
	return value, nil
}

// text is the value as it is written, or what is wrong with it.
func (s series) text() (text, wrong string) {
	if len(s.Value) != 2 {
		return "", "no single figure"
	}
	if err := json.Unmarshal(s.Value[1], &text); err != nil {
		return "", "a value that is no text"
	}
	return text, ""
}

func percents(percent int64) corev1.ResourceList {
	return corev1.ResourceList{schemas.LoadMetric: *resource.NewQuantity(percent, resource.DecimalSI)}
}

// oddities tells once what is wrong with the figures of nodes.
type oddities struct {
	log   *slog.Logger
	query string
	told  map[string]string
}

// tell logs what is wrong now and was not before.
func (o *oddities) tell(odd map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(odd)) {
		if _, known := o.told[name]; !known {
			o.log.Warn("a query does not say what the load of a node is", "node", name, "gives", odd[name], "query", o.query)
		}
	}
	o.told = odd
}
