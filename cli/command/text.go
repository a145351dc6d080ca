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

// WriteTable writes an empty line and a table, if it has rows. Of a table with cut, the last column is cut to the width of a line.
func WriteTable(w io.Writer, cut bool, head string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	if cut {
		cutLast(rows, strings.Split(head, "\t"))
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

func Ago(now, then time.Time) string { return Age(now, then) + " ago" }

// Age formats how long before now something was, to the second.
func Age(now, then time.Time) string { return max(now.Sub(then), 0).Truncate(time.Second).String() }

// SizeOf formats a number of bytes.
func SizeOf(bytes uint64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	size, unit := float64(bytes), 0
	for ; size >= 1024 && unit < 4; unit++ {
		size /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", size, " KMGT"[unit])
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
	// LineWidth limits the lines of a list, in characters.
	LineWidth = 160
	// leastError is the least width of the last column.
	leastError = 40
)

// cutLast cuts the last cell of each row to the space that the other columns leave.
func cutLast(rows [][]string, head []string) {
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

// Printable replaces characters that could control a terminal: other programs write the text of dead letters.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, text)
}
