package cluster

import "testing"

func TestMinorVersion(t *testing.T) {
	for _, test := range []struct {
		text  string
		minor int
		err   string
	}{
		{"36", 36, ""},
		{"36+", 36, ""},
		{"", 0, `version of the API server: minor version "" is not a number`},
		{"+", 0, `version of the API server: minor version "+" is not a number`},
		{"36-gke", 0, `version of the API server: minor version "36-gke" is not a number`},
	} {
		t.Run(test.text, func(t *testing.T) {
			minor, err := parseMinor(test.text)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if minor != test.minor || text != test.err {
				t.Errorf("got %d, %q, want %d, %q", minor, text, test.minor, test.err)
			}
		})
	}
}
