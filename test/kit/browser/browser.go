// Package browser opens web pages in Chromium for tests.
package browser

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// patience ends a test that fails. It is no measure of speed.
const patience = time.Minute

// Tab is a tab of Chromium. It collects uncaught exceptions, errors in the console, and the errors of Report.
type Tab struct {
	expect.T
	Ctx context.Context // for chromedp

	mu     sync.Mutex
	errors []string
}

// Open starts Chromium with more options, and returns its first tab. Chromium ends with the test.
func Open(t testing.TB, more ...chromedp.ExecAllocatorOption) *Tab {
	t.Helper()
	b := &Tab{T: expect.T{TB: t}, Ctx: start(t, more...)}
	chromedp.ListenTarget(b.Ctx, b.event)
	b.Do(runtime.Enable())
	return b
}

// start returns the context of the first tab.
func start(t testing.TB, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("this test needs Chromium; install it with `make browser`: %v", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("enable-precise-memory-info", true), chromedp.Flag("force-color-profile", "srgb"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(options, more...)...)
	ctx, cancelTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until Chromium has ended
		cancelTab()
		cancel()
	})
	if err := chromedp.Run(ctx); err != nil { // Chromium ends with the context of the first Run
		t.Fatal(err)
	}
	return ctx
}

func (b *Tab) event(e any) {
	switch e := e.(type) {
	case *runtime.EventExceptionThrown:
		b.Report(e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			b.Report(Console(e))
		}
	}
}

// Console returns the text of a call of the console.
func Console(e *runtime.EventConsoleAPICalled) string {
	var words []string
	for _, a := range e.Args {
		words = append(words, string(a.Value)+a.Description)
	}
	return strings.Join(words, " ")
}

// Report adds an error.
func (b *Tab) Report(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = append(b.errors, problem)
}

// NoErrors fails for each error since the last call.
func (b *Tab) NoErrors(page string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		b.Errorf("%s: %s", page, e)
	}
	b.errors = nil
}

// Do runs actions, and fails after a minute.
func (b *Tab) Do(actions ...chromedp.Action) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, patience)
	defer cancel()
	b.Must(chromedp.Run(ctx, actions...))
}
