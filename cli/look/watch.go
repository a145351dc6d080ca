package look

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/cli/cmdutil"
)

// watchEvery is the interval of reads.
const watchEvery = time.Second

// watchStatus shows the status until ctx ends or the user quits.
func watchStatus(c *cobra.Command, to cmdutil.Installation, q cmdutil.StatusQuery) error {
	if file, is := c.OutOrStdout().(*os.File); is && term.IsTerminal(int(file.Fd())) {
		look := func() (client.State, error) { return to.Status(c.Context(), q) }
		_, err := tea.NewProgram(newPicture(look), tea.WithContext(c.Context()), tea.WithAltScreen(), tea.WithOutput(file)).Run()
		if c.Context().Err() == nil {
			return err
		}
		return nil
	}
	return writeChanges(c.Context(), c.OutOrStdout(), to, q)
}

// writeChanges writes a line for each change of the summary, and for each new read error.
func writeChanges(ctx context.Context, w io.Writer, to cmdutil.Installation, q cmdutil.StatusQuery) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last, known := "", false; ; {
		st, err := to.Status(ctx, q)
		line := ""
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !known:
			return err // it was never reachable
		case err != nil:
			line = "unknown: " + err.Error()
		default:
			known = true
			line = StatusPage{st.Status}.line()
		}
		if line != last {
			if _, err := fmt.Fprintf(w, "%s  %s\n", time.Now().Format(time.TimeOnly), line); err != nil {
				return err
			}
			last = line
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// line is the summary with the numbers of deferred pods and open requests.
func (st StatusPage) line() string {
	return fmt.Sprintf("%s, %s deferred, %s, %s", st.brief(), cmdutil.Count(len(st.Deferred), "pod"),
		cmdutil.Count(len(st.Requests), "open request"), cmdutil.Count(len(st.Maintenances), "maintenance"))
}

// looked is the result of a read.
type looked struct {
	state client.State
	err   error
}

// Init implements [tea.Model].
func (p picture) Init() tea.Cmd { return p.lookNow }

func (p picture) lookNow() tea.Msg {
	st, err := p.look()
	return looked{st, err}
}

// Update implements [tea.Model].
func (p picture) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		p.width, p.height = m.Width, m.Height
	case tea.KeyMsg:
		return p.key(m.String())
	case looked:
		if p.err = m.err; m.err == nil {
			p.state, p.known = m.state, true
		}
		return p, tea.Tick(watchEvery, func(time.Time) tea.Msg { return p.lookNow() })
	}
	return p, nil
}

func (p picture) key(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "esc", "ctrl+c":
		return p, tea.Quit
	case "down", "j":
		p.top++
	case "up", "k":
		p.top--
	case "pgdown", " ":
		p.top += max(p.height-2, 1)
	case "pgup":
		p.top -= max(p.height-2, 1)
	case "home", "g":
		p.top = 0
	}
	p.top = max(0, min(p.top, len(p.lines())-p.height+1))
	return p, nil
}
