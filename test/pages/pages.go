// Package pages reads what pages of the documentation show of a terminal, so that tests can type it and compare what is
// printed. It types nothing itself.
package pages

import (
	"regexp"
	"strings"
)

// Section is a part of a page with a heading of the second level.
type Section struct {
	Title string
	Text  string // without the heading
}

// Sections are the sections of a page, in their order. What comes before the first one belongs to none.
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

// Typed is a command, and the lines that the page shows that it prints. Command can have several lines: the document that a
// `<<'EOF'` announces belongs to it, and what follows a backslash or a pipe at the end of a line.
type Typed struct {
	Command string
	Prints  []string
}

// Console are the commands of a text: in blocks of the language console, each after "$ ".
func Console(text string) []Typed { return collect(text, false) }

// Commands are those of [Console] and the lines of indented blocks and of blocks of the language sh, each of which is a command
// that shows nothing. Comments there are left out.
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

// reader puts lines together to commands.
type reader struct {
	list  []Typed
	until string // the line that ends a document; empty: no document
	more  bool   // the line before ended with a backslash or a pipe
	ended bool   // nothing more belongs to the last command
}

// heredoc finds the word that ends the document of a command.
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

// open says whether the next line still belongs to the last command.
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

// unfinished says whether the shell would read on after the line.
func unfinished(line string) bool {
	return strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|")
}
