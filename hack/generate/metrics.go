package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// metric is a row of docs/metrics.md.
type metric struct {
	name, kind, help string
	labels           []string
}

// metricSections are the regions of docs/metrics.md: the directories whose code declares the metrics, and their names.
var metricSections = []struct { //nolint:gochecknoglobals // a table that nothing changes
	region string
	dirs   []string
	names  *regexp.Regexp
}{
	{"build", []string{"app/serving"}, regexp.MustCompile(`_build_info$`)},
	{"roles", []string{"app", "app/serving"}, regexp.MustCompile(`^rehome_(http|ready|leader|apiserver|policy)`)},
	{"bus", []string{"app"}, regexp.MustCompile(`^rehome_(bus|dead)_`)},
	{"watcher", []string{"watcher"}, regexp.MustCompile(`^rehome_`)},
	{"actuator", []string{"actuator"}, regexp.MustCompile(`^(rehome|descheduler)_`)},
	{"maintenance", []string{"maintenance"}, regexp.MustCompile(`^rehome_`)},
	{"functions", []string{"functions", "functions/dispatch", "functions/httpfunction"}, regexp.MustCompile(`^rehome_`)},
	{"forwarders", []string{"cli/run"}, regexp.MustCompile(`^rehome_`)},
}

// metricPages writes the tables of docs/metrics.md.
func metricPages() error {
	var failed []error
	for _, s := range metricSections {
		var b strings.Builder
		b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
		for _, dir := range s.dirs {
			all, err := metricsIn(dir)
			failed = append(failed, err)
			for _, m := range all {
				if s.names.MatchString(m.name) {
					labels := ""
					if len(m.labels) > 0 {
						labels = "`" + strings.Join(m.labels, "`, `") + "`"
					}
					fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
				}
			}
		}
		failed = append(failed, region("docs/metrics.md", s.region, b.String()))
	}
	return errors.Join(failed...)
}

// metricsIn returns the metrics that the files of a directory declare, in their order.
func metricsIn(dir string) (all []metric, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		variables := map[string]ast.Expr{}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if to, ok := n.Lhs[0].(*ast.Ident); ok {
					variables[to.Name] = n.Rhs[0]
				}
			case *ast.CallExpr:
				if m, ok := metricOf(n, variables); ok {
					all = append(all, m)
				}
			}
			return true
		})
	}
	return all, nil
}

var metricName = regexp.MustCompile(`^(rehome|descheduler)_[a-z_]+$`)

// metricOf returns the metric that a call declares. The call has one of two forms:
//
//	prometheus.NewCounterVec(prometheus.CounterOpts{Name: …, Help: …}, []string{LABEL, …})
//	helper(NAME, HELP, LABEL, …)
func metricOf(call *ast.CallExpr, variables map[string]ast.Expr) (m metric, ok bool) {
	if len(call.Args) == 0 {
		return metric{}, false
	}
	rest := call.Args[1:]
	if options, ok := call.Args[0].(*ast.CompositeLit); ok {
		for _, e := range options.Elts {
			field, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key, _ := field.Key.(*ast.Ident); key.String() {
			case "Name":
				m.name, _ = text(field.Value)
			case "Help":
				m.help, _ = text(field.Value)
			case "ConstLabels":
				m.labels = append(m.labels, labelNames(field.Value, variables)...)
			}
		}
	} else if len(call.Args) > 1 {
		m.name, _ = text(call.Args[0])
		m.help, _ = text(call.Args[1])
		rest = call.Args[2:]
	}
	if !metricName.MatchString(m.name) || m.help == "" {
		return metric{}, false
	}
	for _, a := range rest {
		m.labels = append(m.labels, labelNames(a, variables)...)
	}
	slices.Sort(m.labels)
	m.kind = "gauge"
	for _, kind := range []string{"counter", "histogram"} {
		if strings.Contains(strings.ToLower(calledName(call)), kind) {
			m.kind = kind
		}
	}
	return m, true
}

// calledName returns the last word of the name of the called function.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// labelNames returns the label in a string, the labels in a []string, or the keys of a map. variables are the maps with names.
func labelNames(value ast.Expr, variables map[string]ast.Expr) (labels []string) {
	if v, ok := value.(*ast.Ident); ok {
		value = variables[v.Name]
	}
	if one, ok := text(value); ok {
		return []string{one}
	}
	c, ok := value.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, e := range c.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			e = pair.Key
		}
		if one, ok := text(e); ok {
			labels = append(labels, one)
		}
	}
	return labels
}

// text returns the value of a string literal, or of a sum of them.
func text(value ast.Expr) (string, bool) {
	switch v := value.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(v.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		a, okA := text(v.X)
		b, okB := text(v.Y)
		return a + b, okA && okB
	}
	return "", false
}
