package bus

import (
	"encoding/json"
	"fmt"

	"github.com/rehome-dev/rehome/schemas"
)

// Structured writes e as a CloudEvent in structured mode: one JSON object on one line, for files, pipes and people. It
// fails with an error that wraps [schemas.ErrInvalid] when e is not a valid CloudEvent with JSON data.
func Structured(e schemas.Event) ([]byte, error) {
	ce := toCloudEvent(e)
	if err := ce.Validate(); err != nil {
		return nil, fmt.Errorf("write event %q: %w: %s", e.ID, schemas.ErrInvalid, oneLine(err))
	}
	ce.DataEncoded = e.Data
	line, err := json.Marshal(ce)
	if err != nil {
		return nil, fmt.Errorf("write event %q: %w: %w", e.ID, schemas.ErrInvalid, err)
	}
	return line, nil
}
