package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/filetest"
)

var update = flag.Bool("update", false, "write docs/api.openapi.json")

// TestOpenAPI compares the page of the documentation with the document that the server serves.
func TestOpenAPI(t *testing.T) {
	w := httptest.NewRecorder()
	loneServer(t).ServeHTTP(w, call(t, http.MethodGet, "/v1/openapi.json", nil))
	var want bytes.Buffer
	if err := json.Indent(&want, bytes.TrimSpace(w.Body.Bytes()), "", "  "); err != nil || w.Code != http.StatusOK {
		t.Fatalf("got %d, %v", w.Code, err)
	}
	want.WriteByte('\n')
	filetest.Golden(t, "../docs/api.openapi.json", want.String(), *update) // make generate writes it
}
