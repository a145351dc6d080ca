package pages

import (
	"reflect"
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	page := strings.Join([]string{
		"# The page", "", "    before any section", "", "## One", "", "Type:", "", "```console", "$ kubectl get nm", "NAME   AGE", "rack-7   3s",
		"$ cat > a.yaml <<'EOF'", "$ not: a command", "EOF", "$ kubectl apply \\", "    -f a.yaml", "applied", "```", "", "Then:", "",
		"    # a comment", "    rehome status", "    kubectl create secret x \\", "      --from-literal=a=b", "    kubectl get nm |", "      wc -l", "", "```yaml", "## no heading", "a: 1", "```",
		"", "## Two", "", "```sh", "helm version", "```",
	}, "\n")
	sections := Sections(page)
	var titles []string
	for _, s := range sections {
		titles = append(titles, s.Title)
	}
	if want := []string{"One", "Two"}; !reflect.DeepEqual(titles, want) {
		t.Fatalf("sections: got %q, want %q", titles, want)
	}
	console := []Typed{
		{"kubectl get nm", []string{"NAME   AGE", "rack-7   3s"}},
		{"cat > a.yaml <<'EOF'\n$ not: a command\nEOF", nil},
		{"kubectl apply \\\n    -f a.yaml", []string{"applied"}},
	}
	if got := Console(sections[0].Text); !reflect.DeepEqual(got, console) {
		t.Errorf("console:\n got %q\nwant %q", got, console)
	}
	all := append(console, Typed{"rehome status", nil}, Typed{"kubectl create secret x \\\n  --from-literal=a=b", nil},
		Typed{"kubectl get nm |\n  wc -l", nil})
	if got := Commands(sections[0].Text); !reflect.DeepEqual(got, all) {
		t.Errorf("commands:\n got %q\nwant %q", got, all)
	}
	if got, want := Commands(sections[1].Text), []Typed{{"helm version", nil}}; !reflect.DeepEqual(got, want) {
		t.Errorf("commands:\n got %q\nwant %q", got, want)
	}
}

func TestAlike(t *testing.T) {
	for _, c := range []struct {
		name    string
		page    []string
		printed string
		want    bool
	}{
		{"the same", []string{"NAME   AGE", "rack-7   3s"}, "NAME     AGE\nrack-7   2m5s\n", true},
		{"another word", []string{"NAME   AGE", "rack-7   3s"}, "NAME     AGE\nrack-8   3s\n", false},
		{"a line more", []string{"NAME   AGE"}, "NAME     AGE\nrack-7   3s\n", false},
		{"lines that are left out", []string{"NAME   AGE", "…"}, "NAME     AGE\nrack-7   3s\nrack-8   3s\n", true},
		{"lines in between", []string{"a", "…", "c"}, "a\nb\nb\nc\n", true},
		{"another end", []string{"a", "…", "c"}, "a\nb\n", false},
		{"how often", []string{"3s   Normal"}, "4s (x2 over 11s)   Normal\n", true},
		{"other pods of a Deployment", []string{"cart-6d4cf56db6-x2x4z"}, "cart-5f7d8c9b4d-abcde\n", true},
		{"pods of nothing that was named", []string{"till-6d4cf56db6-x2x4z"}, "till-5f7d8c9b4d-abcde\n", false},
		{"another number", []string{"1/2"}, "2/2\n", false},
		{"nothing is shown", nil, "anything\n", true},
	} {
		if got := (Masks{Workloads: []string{"cart"}}).Alike(c.page, c.printed); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
