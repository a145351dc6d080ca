package schemas_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

// constant is a string constant in the source.
type constant struct {
	typ, name, value, comment string
}

// constants reads all string constants of the package from its source.
func constants(t *testing.T) []constant {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []constant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, spec := range d.Specs {
					all = append(all, specConstants(spec.(*ast.ValueSpec))...)
				}
			}
			return true
		})
	}
	return all
}

// specConstants reads name T = "value" and name = T("value").
func specConstants(spec *ast.ValueSpec) []constant {
	var all []constant
	for i, value := range spec.Values {
		c := constant{name: spec.Names[i].Name, comment: strings.TrimSpace(spec.Comment.Text())}
		if t, ok := spec.Type.(*ast.Ident); ok {
			c.typ = t.Name
		}
		if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 {
			if t, ok := call.Fun.(*ast.Ident); ok {
				c.typ, value = t.Name, call.Args[0]
			}
		}
		literal, ok := value.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		c.value, _ = strconv.Unquote(literal.Value)
		all = append(all, c)
	}
	return all
}

// valuesOf returns the values of the constants of a type.
func valuesOf(t *testing.T, typ string) []string {
	t.Helper()
	var values []string
	for _, c := range constants(t) {
		if c.typ == typ {
			values = append(values, c.value)
		}
	}
	if len(values) == 0 {
		t.Fatalf("no constants of type %s in the source", typ)
	}
	return values
}

// eventTypes returns the values of the constants with event types.
func eventTypes(t *testing.T) []string {
	t.Helper()
	var types []string
	for _, c := range constants(t) {
		if c.typ == "" && strings.HasSuffix(c.name, "Type") {
			types = append(types, c.value)
		}
	}
	if len(types) == 0 {
		t.Fatal("no event types in the source")
	}
	return types
}

func asStrings[T ~string](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

func TestConstantsMatchTheEnums(t *testing.T) {
	causes := append(valuesOf(t, "CauseKind"), valuesOf(t, "DeltaKind")...)
	for _, test := range []struct {
		what string
		enum []string
		want []string
	}{
		{"kinds of deltas", schemaOf(t, "delta").get("$defs").get("deltaKind").enum(t), valuesOf(t, "DeltaKind")},
		{"kinds of scopes", schemaOf(t, "scope").get("$defs").get("scopeKind").enum(t), valuesOf(t, "ScopeKind")},
		{"kinds of causes", schemaOf(t, "scope").get("$defs").get("causeKind").enum(t), causes},
		{"outcomes", schemaOf(t, "verdict").get("properties").get("outcome").enum(t), valuesOf(t, "Outcome")},
		{"methods", schemaOf(t, "verdict").get("$defs").get("method").enum(t), valuesOf(t, "Method")},
		{"actions of requests", schemaOf(t, "request").get("$defs").get("requestAction").enum(t), valuesOf(t, "RequestAction")},
		{"methods of requests", schemaOf(t, "request").get("$defs").get("requestMethod").enum(t), valuesOf(t, "RequestMethod")},
		{"states of receipts", schemaOf(t, "receipt").get("$defs").get("receiptState").enum(t), valuesOf(t, "ReceiptState")},
		{"reasons of receipts", schemaOf(t, "receipt").get("properties").get("reason").enum(t), valuesOf(t, "ReceiptReason")},
		{"reason codes", schemaOf(t, "verdict").get("properties").get("reason").enum(t), valuesOf(t, "ReasonCode")},
	} {
		sameSet(t, test.what, test.enum, test.want)
	}
}

func TestListsAreComplete(t *testing.T) {
	sameSet(t, "DeltaKinds()", asStrings(schemas.DeltaKinds()), valuesOf(t, "DeltaKind"))
	sameSet(t, "EventTypes()", schemas.EventTypes(), eventTypes(t))
	sameSet(t, "Outcomes()", asStrings(schemas.Outcomes()), valuesOf(t, "Outcome"))
	sameSet(t, "RequestActions()", asStrings(schemas.RequestActions()), valuesOf(t, "RequestAction"))
	sameSet(t, "RequestMethods()", asStrings(schemas.RequestMethods()), valuesOf(t, "RequestMethod"))
}

// reasonsByComment groups the constants of a type by the first word of their comments.
func reasonsByComment(t *testing.T, typ string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, c := range constants(t) {
		if c.typ == typ {
			belongs, _, _ := strings.Cut(c.comment, ":")
			all[belongs] = append(all[belongs], c.value)
		}
	}
	return all
}

// The comment of a reason code begins with the outcome that it belongs to.
func TestReasonCodesOfOutcomes(t *testing.T) {
	want := reasonsByComment(t, "ReasonCode")
	verdict := schemaOf(t, "verdict")
	for _, outcome := range valuesOf(t, "Outcome") {
		sameSet(t, "reasons of "+outcome, reasonsFor(t, verdict, outcome), want[outcome])
		delete(want, outcome)
	}
	if len(want) > 0 {
		t.Errorf("reason codes whose comment does not begin with an outcome: %v", want)
	}
}

// The comment of a reason of a receipt begins with the state that it belongs to.
func TestReceiptReasonsOfStates(t *testing.T) {
	want, got := reasonsByComment(t, "ReceiptReason"), map[string][]string{}
	for _, condition := range schemaOf(t, "receipt").get("allOf").each() {
		state := condition.get("if").get("properties").get("state").get("const").text()
		got[state] = condition.get("then").get("properties").get("reason").enum(t)
	}
	same(t, "reasons of receipts", got, want)
}

// reasonsFor returns the reasons that the verdict schema allows for an outcome.
func reasonsFor(t *testing.T, verdict place, outcome string) []string {
	t.Helper()
	for _, condition := range verdict.get("allOf").each() {
		if condition.get("if").get("properties").get("outcome").get("const").text() == outcome {
			return condition.get("then").get("properties").get("reason").enum(t)
		}
	}
	return nil
}

func TestDescriptionsOfEnumsExplainEveryValue(t *testing.T) {
	verdict := schemaOf(t, "verdict")
	enums := []place{
		schemaOf(t, "delta").get("$defs").get("deltaKind"),
		schemaOf(t, "scope").get("$defs").get("scopeKind"),
		schemaOf(t, "scope").get("$defs").get("causeKind"),
		verdict.get("properties").get("outcome"),
	}
	for _, def := range verdict.get("$defs").each() {
		enums = append(enums, def.place)
	}
	for _, def := range schemaOf(t, "receipt").get("$defs").each() {
		if def.get("type").text() == "string" {
			enums = append(enums, def.place)
		}
	}
	request := schemaOf(t, "request").get("$defs")
	enums = append(enums, request.get("requestAction"), request.get("requestMethod"))
	for _, e := range enums {
		var values []string
		for _, alternative := range e.get("anyOf").each() {
			values = append(values, alternative.get("enum").strings()...) // references are described at their target
		}
		if len(values) == 0 {
			t.Errorf("%s: no values beside %q", e.file, e.get("description").text())
		}
		for _, value := range values {
			if !strings.Contains(e.get("description").text(), value+": ") {
				t.Errorf("%s: no description of %q in %q", e.file, value, e.get("description").text())
			}
		}
	}
}

func TestEveryEventTypeHasASchemaAndAnExample(t *testing.T) {
	var described, led []string
	for _, name := range schemaFiles() {
		if name != "event" {
			described = append(described, "dev.rehome."+name+".v1")
		}
	}
	for _, condition := range schemaOf(t, "event").get("allOf").each() {
		typ := condition.get("if").get("properties").get("type").get("const").text()
		ref := condition.get("then").get("properties").get("data").get("$ref").text()
		if want := strings.Split(typ, ".")[2] + ".schema.json"; ref != want {
			t.Errorf("envelope: data of %s is %q, want %q", typ, ref, want)
		}
		led = append(led, typ)
	}
	var examples []string
	for _, e := range exampleEvents(t) {
		examples = append(examples, e.Type)
	}
	slices.Sort(examples)
	want := eventTypes(t)
	sameSet(t, "schemas", described, want)
	sameSet(t, "conditions of the envelope", led, want)
	sameSet(t, "types of the examples", slices.Compact(examples), want)
}
