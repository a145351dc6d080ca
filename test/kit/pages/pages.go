// Package pages extracts commands and their output from pages of the documentation, so tests can run them.
package pages

import (
	"regexp"
	"strings"
)

// Section is a part of a page with a second-level heading.
type Section struct {
	Title string
	Text  string // without the heading
}

// Sections returns the sections of a page in order, without the text before the first one.
func Sections(page string) []Section {
	var all []Section
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if title, is := strings.CutPrefix(line, "## "); is && !fenced {
			all = append(all, Section{Title: strings.TrimSpace(title)})
		} else if len(all) > 0 {
			all[len(all)-1].Text += line
		}
	}
	return all
}

// Typed is a command and its output on the page. A command with a `<<'EOF'` document, or with a backslash or pipe at the end of a
// line, has several lines.
type Typed struct {
	Command string
	Prints  []string
}

// Console returns the commands in console blocks, each after "$ ".
func Console(text string) []Typed { return collect(text, false) }

// Commands returns the commands of [Console], and each line of indented blocks and sh blocks as a command without output. It
// skips comments.
func Commands(text string) []Typed { return collect(text, true) }

func collect(text string, all bool) []Typed {
	var r reader
	language := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if fence, is := strings.CutPrefix(line, "```"); is {
			switch {
			case language == "" && fence == "":
				language = "text"
			case language == "":
				language = fence
			default:
				language = ""
			}
			r.ended = true
			continue
		}
		switch indented, is := strings.CutPrefix(line, "    "); {
		case language == "console":
			r.console(line)
		case all && language == "sh":
			r.script(line)
		case all && language == "" && is:
			r.script(indented)
		case language == "":
			r.ended = true
		}
	}
	return r.list
}

// reader joins lines to commands.
type reader struct {
	list  []Typed
	until string // the line that ends the document, if any
	more  bool   // the previous line ended with a backslash or a pipe
	ended bool   // the last command is complete
}

// heredoc matches the start of a document.
var heredoc = regexp.MustCompile(`<<'?(\w+)'?`)

func (r *reader) console(line string) {
	if command, is := strings.CutPrefix(line, "$ "); is && !r.open() {
		r.begin(command)
	} else if r.open() {
		r.goOn(line)
	} else if !r.ended {
		last := &r.list[len(r.list)-1]
		last.Prints = append(last.Prints, line)
	}
}

func (r *reader) script(line string) {
	switch {
	case r.open():
		r.goOn(line)
	case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
	default:
		r.begin(line)
	}
}

// open reports whether the next line belongs to the last command.
func (r *reader) open() bool { return !r.ended && (r.until != "" || r.more) }

func (r *reader) begin(command string) {
	r.list = append(r.list, Typed{Command: command})
	r.until, r.ended = "", false
	if m := heredoc.FindStringSubmatch(command); m != nil {
		r.until = m[1]
	}
	r.more = unfinished(command)
}

func (r *reader) goOn(line string) {
	last := &r.list[len(r.list)-1]
	last.Command += "\n" + line
	if r.until == "" {
		if m := heredoc.FindStringSubmatch(line); m != nil {
			r.until = m[1]
		}
	} else if line == r.until {
		r.until = ""
	}
	r.more = unfinished(line)
}

// unfinished reports whether the shell would continue on the next line.
func unfinished(line string) bool {
	return strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|")
}
