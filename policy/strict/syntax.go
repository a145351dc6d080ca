package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Syntax reports that the file is neither YAML nor JSON, and where.
func (d *Decoder) Syntax(data []byte, err error) {
	inner, isMap := bytes.CutPrefix(bytes.TrimSpace(data), []byte("{"))
	if isMap && bytes.HasPrefix(bytes.TrimSpace(inner), []byte(`"`)) {
		if wrong, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, new(any))); ok {
			line := 1 + bytes.Count(data[:wrong.Offset], []byte("\n"))
			d.Report(Place{Line: line}, "this is not JSON: "+wrong.Error(), "", "")
			return
		}
	}
	line, text := whereYAMLBreaks(data, err)
	d.Report(Place{Line: line}, "this is not YAML: "+text, "", "")
}

// whereYAMLBreaks finds the line of a YAML error. The library names the line where the surrounding block begins, one too
// low, or none. So the shortest beginning of the file that gives the same error is looked for: it ends in the line.
func whereYAMLBreaks(data []byte, err error) (line int, text string) {
	text = withoutLine(err)
	lines := bytes.SplitAfter(data, []byte("\n"))
	n := sort.Search(len(lines)-1, func(i int) bool {
		err := wellFormed(bytes.Join(lines[:i+1], nil))
		return err != nil && withoutLine(err) == text
	})
	if n == len(lines)-1 && len(lines[n]) == 0 && n > 0 {
		n-- // what is missing is missing at the end of the last line that has something
	}
	return n + 1, text
}

func wellFormed(data []byte) error {
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		if err := documents.Decode(&n); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// withoutLine is the text of an error of the YAML library, which names itself and the line in front.
func withoutLine(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if _, err := fmt.Sscanf(text, "line %d:", &line); err == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return text
}
