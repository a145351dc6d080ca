package command

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// WriteTable writes an empty line and a table, if it has rows.
func WriteTable(w io.Writer, head string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, head)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // into memory
	fmt.Fprintln(w)
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// Ago says how long before now something was.
func Ago(now, then time.Time) string { return Age(now, then) + " ago" }

// Age is how old something is, to the second.
func Age(now, then time.Time) string { return max(now.Sub(then), 0).Truncate(time.Second).String() }

// SizeOf is a number of bytes as people read it.
func SizeOf(bytes uint64) string {
	const step = 1024
	size, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < step {
			break
		}
		size, unit = size/step, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// Count is "no thing", "1 thing", "2 things".
func Count(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

const (
	// LineWidth is how wide a line of a list gets at most: as wide as two files beside each other on a common screen.
	LineWidth = 160
	// leastError is how much of an error is shown however long the rest of the line is.
	leastError = 40
)

// CutLast cuts the last cell of each row to what the columns before it leave of a line.
func CutLast(rows [][]string, head []string) {
	last := len(head) - 1
	room := LineWidth
	for i := range last {
		width := len(head[i])
		for _, row := range rows {
			width = max(width, utf8.RuneCountInString(row[i]))
		}
		room -= width + len("   ")
	}
	room = max(room, leastError)
	for _, row := range rows {
		if text := []rune(row[last]); len(text) > room {
			row[last] = string(text[:room-1]) + "…"
		}
	}
}

// Printable is text that cannot move the cursor of a terminal: what anybody wrote stands in dead letters.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, text)
}
