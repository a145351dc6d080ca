package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/api.openapi.json")

// TestOpenAPI compares the page of the documentation with the document that the server serves.
func TestOpenAPI(t *testing.T) {
	const path = "../docs/api.openapi.json"
	w := httptest.NewRecorder()
	loneServer(t).ServeHTTP(w, call(t, http.MethodGet, "/v1/openapi.json", nil))
	var want bytes.Buffer
	if err := json.Indent(&want, bytes.TrimSpace(w.Body.Bytes()), "", "  "); err != nil || w.Code != http.StatusOK {
		t.Fatalf("got %d, %v", w.Code, err)
	}
	want.WriteByte('\n')
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is stale, error %v: run make generate", path, err)
	}
}
