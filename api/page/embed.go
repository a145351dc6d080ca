// Package page is the web page of the API.
package page

import (
	"embed"
	"net/http"
)

//go:embed index.html
var files embed.FS

// Handler serves the page.
func Handler() http.Handler { return http.FileServerFS(files) }
