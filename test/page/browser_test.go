// Package page tests the web page in Chromium, with the product on a real control plane.
//
//	browser_test.go    Chromium: open, evaluate, wait, screenshot
//	axe_test.go        rules of accessibility
//	stage_test.go      a control plane with pods, and Rehome
//	page_test.go       the views, in one story
//	network_test.go    a network address: tokens, rights, and a bus outside of the process
//	picture_bench_test.go   5,000 nodes and 100,000 pods
package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	chromium "github.com/rehome-dev/rehome/test/kit/browser"
)

// patience ends a test that fails. It is no measure of speed.
const patience = time.Minute

// browser is a tab of Chromium with the page.
type browser struct{ *chromium.Tab }

// newBrowser starts Chromium, which ends with the test.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	return &browser{chromium.Open(t, chromedp.IgnoreCertErrors)}
}

// show sets the size and the theme.
func (b *browser) show(width, height int64, theme string) {
	b.Helper()
	b.Do(emulation.SetDeviceMetricsOverride(width, height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
}

// open opens an address, and waits for the picture.
func (b *browser) open(address string) {
	b.Helper()
	b.Do(chromedp.Navigate(address))
	b.until("the page has the cluster", `Boolean(window.rehome?.model.ready)`)
}

// view opens a view of the page that is there.
func (b *browser) view(hash string) {
	b.Helper()
	b.run(fmt.Sprintf("location.hash = %q", hash))
	b.until("the view "+hash, fmt.Sprintf("location.hash === %q && document.querySelector('main > *') !== null", hash))
}

// run evaluates a statement.
func (b *browser) run(script string) {
	b.Helper()
	b.Do(chromedp.Evaluate(script, nil))
}

// get evaluates an expression, which may be a promise.
func get[T any](b *browser, script string) (value T) {
	b.Helper()
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	var text string
	script = "Promise.resolve(" + script + ").then((v) => JSON.stringify(v ?? null))"
	if err := chromedp.Run(b.Ctx, chromedp.Evaluate(script, &text, await)); err != nil {
		b.Fatalf("%s: %v", script, err)
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		b.Fatalf("%s: %v", script, err)
	}
	return value
}

// until waits until an expression is true.
func (b *browser) until(what, script string) {
	b.Helper()
	deadline := time.After(patience)
	for {
		var ok bool
		err := chromedp.Run(b.Ctx, chromedp.Evaluate(script, &ok))
		if err == nil && ok {
			return
		}
		select {
		case <-deadline:
			b.shot(b.ArtifactDir() + "/failed.png")
			b.Fatalf("not within %v: %s: %v; the page says:\n%s", patience, what, err, b.text("body"))
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// has waits until an element contains each of the texts.
func (b *browser) has(selector string, texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("%s has %q", selector, text),
			fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))", selector, text))
	}
}

func (b *browser) text(selector string) string {
	b.Helper()
	return get[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

func (b *browser) click(selector string) {
	b.Helper()
	b.until(selector+" is there", fmt.Sprintf("document.querySelector(%q) !== null", selector))
	b.Do(chromedp.Click(selector, chromedp.ByQuery))
}

// collect lets the tab collect its garbage.
func (b *browser) collect() {
	b.Helper()
	b.Do(heapprofiler.CollectGarbage(), chromedp.Sleep(time.Second))
}

// memory is the memory of the tab in MiB: of its process alone, and of its JavaScript.
func (b *browser) memory() (process, script float64) {
	b.Helper()
	heap := get[float64](b, "performance.memory.usedJSHeapSize")
	var processes []*systeminfo.ProcessInfo
	list := chromedp.ActionFunc(func(ctx context.Context) (err error) {
		processes, err = systeminfo.GetProcessInfo().Do(cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser))
		return err
	})
	b.Do(list)
	most := 0
	for _, p := range processes {
		if p.Type == "renderer" {
			most = max(most, private(int(p.ID)))
		}
	}
	return float64(most) / 1024, heap / (1 << 20)
}

// private returns the KiB of memory that only this process uses.
func private(pid int) (sum int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "Private_Clean:" || f[0] == "Private_Dirty:") {
			n, _ := strconv.Atoi(f[1])
			sum += n
		}
	}
	return sum
}

// key presses a key, by its name in KeyboardEvent.
func (b *browser) key(name string) {
	b.Helper()
	keys := map[string]string{"ArrowRight": kb.ArrowRight, "Enter": kb.Enter, "Escape": kb.Escape}
	b.Do(chromedp.KeyEvent(keys[name]))
}

// largestPicture is the largest size of a picture in the documentation.
const largestPicture = 200 << 10

// shot writes what the tab shows.
func (b *browser) shot(path string) {
	b.Helper()
	var picture []byte
	take := chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	})
	if err := errors.Join(chromedp.Run(b.Ctx, take), os.WriteFile(path, picture, 0o644)); err != nil { //nolint:gosec // a picture is not secret
		b.Error(err)
	}
	if len(picture) > largestPicture && !strings.HasSuffix(path, "failed.png") {
		b.Errorf("%s has %d KiB, want at most %d", path, len(picture)>>10, largestPicture>>10)
	}
}
