package cmdutil

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

// APIVersion is the API version of the JSON and YAML output.
const APIVersion = "cli.rehome.dev/v1alpha1"

// Table is a list of objects.
type Table struct {
	Kind    string // of a row
	Columns []string
	Wide    []string // further columns, for -o wide
	Rows    []Row
}

// Row is one object of a table.
type Row struct {
	Namespace, Name string
	Type            string // for -o name: TYPE/NAME
	Object          any    // for -o json and yaml
	Cells           []any  // of Columns and Wide
}

// OutputFlag adds the flag -o for a single object to c.
func OutputFlag(c *cobra.Command) *string {
	format := ""
	Choice(c, &format, "output", "o", "json or yaml", "", "json", "yaml")
	return &format
}

// ListFlag adds the flag -o for a table to c.
func ListFlag(c *cobra.Command) *string {
	format := ""
	Choice(c, &format, "output", "o", "json, yaml, name, or wide", "", "json", "yaml", "name", "wide")
	return &format
}

// Print writes the table in a format of [ListFlag].
func (t Table) Print(w io.Writer, format string) error {
	switch format {
	case "json", "yaml":
		list := unstructured.UnstructuredList{Items: []unstructured.Unstructured{}}
		list.SetAPIVersion(APIVersion)
		list.SetKind(t.Kind + "List")
		for _, r := range t.Rows {
			object, err := objectOf(t.Kind, r.Object)
			if err != nil {
				return err
			}
			object.SetName(r.Name)
			object.SetNamespace(r.Namespace)
			list.Items = append(list.Items, *object)
		}
		return printerOf(format).PrintObj(&list, w)
	case "name":
		for _, r := range t.Rows {
			if _, err := fmt.Fprintf(w, "%s/%s\n", r.Type, r.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(w, "No resources found.")
		return err
	}
	var table metav1.Table
	for _, name := range t.Columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: name})
	}
	for _, name := range t.Wide {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Priority: 1})
	}
	for _, r := range t.Rows {
		for i, cell := range r.Cells {
			if text, ok := cell.(string); ok {
				if r.Cells[i] = Printable(text); text == "" {
					r.Cells[i] = "<none>"
				}
			}
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: r.Cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: format == "wide"}).PrintObj(&table, w)
}

// Page is an object with a text form.
type Page interface{ Write(io.Writer) error }

// Show writes a page as text, or in a format of [OutputFlag].
func Show(w io.Writer, format, kind string, p Page) error {
	if format == "" {
		return p.Write(w)
	}
	return PrintObject(w, format, kind, p)
}

// PrintObject writes an object as JSON or YAML.
func PrintObject(w io.Writer, format, kind string, value any) error {
	object, err := objectOf(kind, value)
	if err != nil {
		return err
	}
	return printerOf(format).PrintObj(object, w)
}

func printerOf(format string) printers.ResourcePrinter {
	if format == "yaml" {
		return &printers.YAMLPrinter{}
	}
	return &printers.JSONPrinter{}
}

func objectOf(kind string, value any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var object unstructured.Unstructured
	if err := json.Unmarshal(data, &object.Object); err != nil {
		return nil, err
	}
	object.SetAPIVersion(APIVersion)
	object.SetKind(kind)
	return &object, nil
}

// Age formats the time since an event like kubectl.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}

// In formats the time until then, or returns "" for the zero time.
func In(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return "in " + duration.HumanDuration(max(then.Sub(now), 0))
}

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

// Count returns text such as "no thing", "1 thing", or "2 things".
func Count(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Printable replaces characters that could control a terminal: other programs write reasons, messages, and dead letters.
func Printable(text string) string { return printable(text, "") }

// PrintableLines is [Printable] for a text with several lines and tabs.
func PrintableLines(text string) string { return printable(text, "\n\t") }

func printable(text, except string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || strings.ContainsRune(except, r) {
			return r
		}
		return '�'
	}, text)
}
