package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rehome-dev/rehome/cli/cmdutil"
)

func uiCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "ui",
		Short: "Open the page of Rehome in the browser",
		Long: "Forward a local port to the page of Rehome in the cluster, print its address, and open it in the browser, until\n" +
			"Ctrl-C. You need the right to forward ports to the pod. The page then has the rights of an operator, and every user\n" +
			"of this machine can use the port. With --server, nothing is forwarded.",
		Example: "  rehome ui\n" +
			"  rehome ui --no-open --port 9000",
		Args: cobra.NoArgs,
	}
	s := cmdutil.Settings(c).Server().Cluster()
	port := c.Flags().Uint16("port", 0, "local port; 0 means any free port")
	noOpen := c.Flags().Bool("no-open", false, "only print the address")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if s.Settings.Server != "" {
			return showPage(c, s.Settings.Server, *noOpen)
		}
		dialer, err := cmdutil.PodDialer(s.Settings)
		if err != nil {
			return err
		}
		defer func() { _ = dialer.Close() }()
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(*port)))
		if err != nil {
			return fmt.Errorf("--port: %w", err)
		}
		defer func() { _ = listener.Close() }()
		pod := &http.Transport{
			DialContext: dialer.Dial, DisableCompression: true, IdleConnTimeout: podIdle,
			MaxConnsPerHost: mostConnections, MaxIdleConnsPerHost: mostConnections,
		}
		if err := answers(c.Context(), pod); err != nil {
			return err
		}
		if err := showPage(c, "http://"+listener.Addr().String()+"/", *noOpen); err != nil {
			return err
		}
		return forward(c.Context(), listener, pod, c.ErrOrStderr())
	}
	return c
}

// answers checks that the page exists before the browser opens it.
func answers(ctx context.Context, pod http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, cmdutil.InPod()+"/", nil)
	if err != nil {
		return err
	}
	answer, err := pod.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the page of Rehome: %s", answer.Status)
	}
	return nil
}

// showPage prints the address, and opens it if there is a terminal and a browser.
func showPage(c *cobra.Command, address string, noOpen bool) error {
	if _, err := fmt.Fprintf(c.OutOrStdout(), "Rehome is at %s\n", address); err != nil {
		return err
	}
	file, is := c.OutOrStdout().(*os.File)
	if noOpen || !is || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	opener, arguments := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		opener = "open"
	case "windows":
		opener, arguments = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	if err := exec.CommandContext(c.Context(), opener, arguments...).Start(); err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "open the address in a browser: %v\n", err)
	}
	return nil
}

const (
	// mostConnections limits the connections to the pod.
	mostConnections = 64
	// podIdle is shorter than the idle timeout of the API.
	podIdle = 30 * time.Second
)

// forward passes requests on to the pod until ctx ends. An error of one request is a note. The pod sees the Host and the Origin
// of the browser, which it compares.
func forward(ctx context.Context, l net.Listener, pod http.RoundTripper, notes io.Writer) error {
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &httputil.ReverseProxy{
		Transport: pod,
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "pod" },
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // of answers that end early
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				fmt.Fprintln(notes, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
