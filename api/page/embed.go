// Package page is the web page of the API, embedded in the binary. It has no build step and loads nothing from elsewhere.
//
//	/v1/watch ──▶ web/server.js ──▶ web/model.js: nodes, pods, cells ──▶ web/picture/: layout.js ▶ paint.js ▶ picture.js
//	                                     │
//	                                     ├─ stage.js         views with the picture: activity.js, time.js and history.js, whatif.js
//	                                     ├─ why.js           timeline of a pod, what keeps a node from being empty, deferred pods
//	                                     └─ maintenance.js   progress of drains
//
// app.js starts it all. The page treats all text of the cluster as hostile: it only ever becomes a text node.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed web
var files embed.FS

// Handler serves the files of the page. A browser asks whether a file has changed before it uses a stored one.
func Handler() http.Handler {
	web, err := fs.Sub(files, "web")
	if err != nil {
		panic(err) // the directory is embedded
	}
	tags := tagsOf(web)
	serve := http.FileServerFS(web)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		tag, known := tags[name]
		if !known { // no lists of directories
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		serve.ServeHTTP(w, r)
	})
}

// tagsOf returns the entity tag of each file.
func tagsOf(web fs.FS) map[string]string {
	tags := map[string]string{}
	err := fs.WalkDir(web, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(web, path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		tags[path] = fmt.Sprintf("%q", hex.EncodeToString(sum[:12]))
		return nil
	})
	if err != nil {
		panic(err) // the files are embedded
	}
	return tags
}
