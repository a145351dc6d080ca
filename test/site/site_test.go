// Package site opens every page of the documentation site in Chromium. `make site` builds the site first.
//
//	go test ./test/site -args -pictures DIR    # also writes a picture of each page: light, dark, and on a phone
package site

import (
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/rehome-dev/rehome/test/kit/browser"
)

const built = "../../.build/site"

var pictures = flag.String("pictures", "", "write a picture of each page to this folder")

// tab is a tab of Chromium that collects the errors and requests of its pages.
type tab struct {
	*browser.Tab
	origin string
}

func TestSite(t *testing.T) {
	if _, err := os.Stat(filepath.Join(built, "index.html")); err != nil {
		t.Fatalf("build the site with `make site`: %v", err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(built)))
	defer server.Close()
	b := &tab{browser.Open(t), server.URL}
	chromedp.ListenTarget(b.Ctx, b.event)
	b.Do(network.Enable(), log.Enable())
	t.Run("every_page_opens", func(t *testing.T) { b.TB = t; b.everyPage(t) })
	t.Run("search_finds_a_page", func(t *testing.T) { b.TB = t; b.search("PodDisruptionBudget") })
	b.TB = t
}

// event reports warnings in the console, failed requests, and requests to other servers.
func (b *tab) event(e any) {
	switch e := e.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeWarning {
			b.Report(browser.Console(e))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			b.Report(e.Entry.Text + " " + e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.origin) && !strings.HasPrefix(e.Request.URL, "data:") {
			b.Report("request to " + e.Request.URL)
		}
	}
}

// show sets the width and the theme.
func (b *tab) show(width int64, theme string) {
	b.Helper()
	b.Do(emulation.SetDeviceMetricsOverride(width, 900, 1, width < 500),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
}

// open opens a page and waits until its scripts run.
func (b *tab) open(page string) {
	b.Helper()
	b.Do(chromedp.Navigate(b.origin+"/"+page), chromedp.Poll("document.querySelector('#app')?.__vue_app__ !== undefined && document.readyState === 'complete'", nil))
}

// content is the part of a page that the test reads.
type content struct {
	Title string   `json:"title"`
	IDs   []string `json:"ids"`
	Links []string `json:"links"`
	Large bool     `json:"large"` // wider than the screen
	Blank []string `json:"blank"` // pictures without content
}

const read = `({
	title: document.querySelector('h1')?.innerText ?? '',
	ids: [...document.querySelectorAll('[id]')].map((e) => e.id),
	links: [...document.querySelectorAll('a[href]')].map((a) => a.href),
	large: document.documentElement.scrollWidth > innerWidth,
	blank: [...document.images].filter((i) => i.complete && i.offsetParent && i.naturalWidth === 0).map((i) => i.src),
})`

// everyPage opens each page at the width of a phone, where a page that is too wide shows, and then compares the links of all pages
// with the pages and headings that exist.
func (b *tab) everyPage(t *testing.T) {
	found := map[string]content{}
	b.show(390, "light")
	for _, page := range files(t) {
		b.open(page)
		var c content
		b.Do(chromedp.Evaluate(read, &c))
		b.NoErrors(page)
		if c.Title == "" {
			b.Errorf("%s has no title", page)
		}
		if c.Large {
			b.Errorf("%s is wider than a phone", page)
		}
		for _, picture := range c.Blank {
			b.Errorf("%s: the picture %s is not there", page, picture)
		}
		found[page] = c
		b.picture(page)
	}
	links := 0
	for page, c := range found {
		links += len(c.Links)
		for _, link := range c.Links {
			if broken(found, b.origin, link) {
				b.Errorf("%s: broken link to %s", page, strings.TrimPrefix(link, b.origin))
			}
		}
	}
	b.Logf("%d pages, %d links", len(found), links)
}

// broken reports whether a link leads to a page or a heading of the site that does not exist.
func broken(pages map[string]content, origin, link string) bool {
	rest, own := strings.CutPrefix(link, origin+"/")
	if !own {
		return false
	}
	name, anchor, _ := strings.Cut(rest, "#")
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	page, exists := pages[name]
	return !exists || anchor != "" && !slices.Contains(page.IDs, anchor)
}

// files returns the pages of the site.
func files(t *testing.T) (all []string) {
	err := fs.WalkDir(os.DirFS(built), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".html" && name != "404.html" {
			all = append(all, name)
		}
		return err
	})
	if err != nil || len(all) < 30 {
		t.Fatalf("pages of the site: got %d, error %v", len(all), err)
	}
	return all
}

// search searches for a word with the keyboard, and opens the first result.
func (b *tab) search(word string) {
	b.show(1280, "light")
	b.open("index.html")
	b.Do(chromedp.KeyEvent("k", chromedp.KeyModifiers(2)), // Ctrl
		chromedp.WaitVisible("#localsearch-input", chromedp.ByQuery), chromedp.SendKeys("#localsearch-input", word, chromedp.ByQuery),
		chromedp.WaitVisible("#localsearch-list .result.selected", chromedp.ByQuery))
	var results int
	b.Do(chromedp.Evaluate("document.querySelectorAll('#localsearch-list .result').length", &results), chromedp.KeyEvent(kb.Enter),
		chromedp.WaitNotPresent("#localsearch-input", chromedp.ByQuery),
		chromedp.Poll(fmt.Sprintf("location.pathname !== '/index.html' && document.querySelector('main')?.innerText.includes(%q)", word), nil))
	b.Logf("%d results", results)
	b.NoErrors("search")
}

// picture writes screenshots of the page: desktop and phone, light and dark.
func (b *tab) picture(page string) {
	if *pictures == "" {
		return
	}
	for _, look := range []struct {
		name  string
		width int64
		theme string
	}{{"phone", 390, "light"}, {"light", 1440, "light"}, {"dark", 1440, "dark"}} {
		b.show(look.width, look.theme)
		var picture []byte
		b.Do(chromedp.Evaluate("document.querySelectorAll('img').forEach((i) => { i.loading = 'eager' })", nil),
			chromedp.Poll("[...document.images].every((i) => i.complete || !i.offsetParent)", nil), chromedp.FullScreenshot(&picture, 100))
		name := strings.ReplaceAll(strings.TrimSuffix(page, ".html"), "/", "-") + "-" + look.name + ".png"
		if err := os.WriteFile(filepath.Join(*pictures, name), picture, 0o644); err != nil { //nolint:gosec // a picture is not secret
			b.Fatal(err)
		}
	}
	b.show(390, "light")
}
