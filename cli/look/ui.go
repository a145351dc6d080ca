package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
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
		if err := answers(c.Context(), dialer.Dial); err != nil {
			return err
		}
		if err := showPage(c, "http://"+listener.Addr().String()+"/", *noOpen); err != nil {
			return err
		}
		return forwardAll(c.Context(), listener, func(ctx context.Context) (net.Conn, error) { return dialer.Dial(ctx, "", "") }, c.ErrOrStderr())
	}
	return c
}

// answers checks that the page exists before the browser opens it.
func answers(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, cmdutil.InPod+"/", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
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

// mostConnections limits the forwarded connections of browsers.
const mostConnections = 64

// forwardAll forwards connections until ctx ends. An error of one connection is a note.
func forwardAll(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error), notes io.Writer) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var work errgroup.Group
	work.SetLimit(mostConnections)
	for {
		near, err := l.Accept()
		if err != nil {
			_ = work.Wait()
			if errors.Is(err, net.ErrClosed) && ctx.Err() != nil {
				return nil
			}
			return err
		}
		work.Go(func() error {
			far, err := dial(ctx)
			if err != nil {
				_ = near.Close()
				if ctx.Err() == nil {
					fmt.Fprintln(notes, err)
				}
				return nil
			}
			join(ctx, near, far)
			return nil
		})
	}
}

// join copies between two connections until one of them ends, and closes both.
func join(ctx context.Context, near, far net.Conn) {
	end := sync.OnceFunc(func() {
		_ = near.Close()
		_ = far.Close()
	})
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			end()
		})
	}
	both.Wait()
}
