package objects

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// plain turns block-style YAML into JSON in one pass, as far as kubectl writes it: mappings, sequences, scalars on one line,
// literal blocks, and the empty {} and []. Whatever else there is makes it give up, and the YAML library reads the text.
type plain struct {
	left []byte // what follows the line
	// indent and text are the line: its spaces, and what comes after them without the spaces at its end. text is nil at the
	// end of the document.
	indent int
	text   []byte
	out    []byte
	gaveUp bool
}

// unwanted are the keys whose values are left out, because they are large and say nothing about the object.
func unwanted(key []byte) bool {
	return string(key) == "managedFields" || string(key) == "kubectl.kubernetes.io/last-applied-configuration"
}

// convertPlain appends the document as JSON to out. ok is false when it is not plain.
func convertPlain(out, text []byte) (json []byte, ok bool) {
	p := &plain{left: text, out: out}
	p.next()
	if p.text == nil {
		return out, false
	}
	p.block(false)
	return p.out, !p.gaveUp && p.text == nil
}

// giveUp ends the reading: at the end of the document no rule applies any more.
func (p *plain) giveUp() { p.gaveUp, p.text, p.left = true, nil, nil }

// next goes on to the next line that is neither blank nor a comment.
func (p *plain) next() {
	for len(p.left) > 0 {
		line := p.left
		end := bytes.IndexByte(line, '\n')
		if end >= 0 {
			line, p.left = line[:end], line[end+1:]
		} else {
			p.left = nil
		}
		n := 0
		for n < len(line) && line[n] == ' ' {
			n++
		}
		line = bytes.TrimRight(line[n:], " ")
		switch {
		case !printable(line):
			p.giveUp()
			return
		case len(line) > 0 && line[0] != '#':
			p.indent, p.text = n, line
			return
		}
	}
	p.text = nil
}

// printable says whether there are only characters about which no rule of YAML is special.
func printable(line []byte) bool {
	for _, c := range line {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// block reads the value that begins at the line. skip: it is left out.
func (p *plain) block(skip bool) {
	before := len(p.out)
	if p.dash() {
		p.sequence(p.indent)
	} else {
		p.mapping(p.indent)
	}
	if skip {
		p.out = append(p.out[:before], "null"...)
	}
}

// dash says whether the line is an entry of a sequence.
func (p *plain) dash() bool {
	return len(p.text) > 0 && p.text[0] == '-' && (len(p.text) == 1 || p.text[1] == ' ')
}

func (p *plain) sequence(indent int) {
	p.out = append(p.out, '[')
	for first := true; p.text != nil && p.indent == indent && p.dash(); first = false {
		if !first {
			p.out = append(p.out, ',')
		}
		rest := bytes.TrimLeft(p.text[1:], " ")
		switch _, _, isKey := cutKey(rest); {
		case len(rest) == 0 || rest[0] == '#':
			p.next()
			p.nested(p.text != nil && p.indent > indent, false)
		case isKey:
			p.indent, p.text = indent+len(p.text)-len(rest), rest
			p.mapping(p.indent)
		default:
			p.scalar(rest, indent)
		}
	}
	p.out = append(p.out, ']')
	p.back(indent)
}

func (p *plain) mapping(indent int) {
	p.out = append(p.out, '{')
	for first := true; p.text != nil && p.indent == indent && !p.dash(); first = false {
		key, rest, ok := cutKey(p.text)
		if !ok || string(key) == "<<" {
			p.giveUp()
			return
		}
		if !first {
			p.out = append(p.out, ',')
		}
		p.out = append(appendString(p.out, key), ':')
		if len(rest) == 0 || rest[0] == '#' {
			p.next()
			p.nested(p.text != nil && (p.indent > indent || p.indent == indent && p.dash()), unwanted(key))
			continue
		}
		before := len(p.out)
		p.scalar(rest, indent)
		if unwanted(key) {
			p.out = append(p.out[:before], "null"...)
		}
	}
	p.out = append(p.out, '}')
	p.back(indent)
}

// back makes sure that a block ends where one around it goes on.
func (p *plain) back(indent int) {
	if p.text != nil && p.indent > indent {
		p.giveUp()
	}
}

// nested reads the value in the lines below a key or a dash, if there is one.
func (p *plain) nested(is, skip bool) {
	if is {
		p.block(skip)
		return
	}
	p.out = append(p.out, "null"...)
}

// longestKey is a little less than YAML allows. Those of Kubernetes are at most a third of it.
const longestKey = 1000

// cutKey splits a line after its key. The key is not quoted any more; rest is what comes after the colon and spaces.
func cutKey(line []byte) (key, rest []byte, ok bool) {
	if len(line) == 0 {
		return nil, nil, false
	}
	var end int // of the key as it is written
	if c := line[0]; c == '"' || c == '\'' {
		end = bytes.IndexByte(line[1:], c) + 2
		if end < 2 {
			return nil, nil, false
		}
		key = line[1 : end-1]
		ok = bytes.IndexByte(key, '\\') < 0
	} else {
		end = max(colon(line), 0)
		key = line[:end]
		ok = end > 0 && line[end-1] != ' ' && !bytes.Contains(key, []byte(" #")) && !special(line) && isString(key)
	}
	if !ok || end > longestKey || end >= len(line) || line[end] != ':' || end+1 < len(line) && line[end+1] != ' ' {
		return nil, nil, false
	}
	return key, bytes.TrimLeft(line[end+1:], " "), true
}

// colon is the position of the first colon that ends a key; below 0: there is none.
func colon(line []byte) int {
	if at := bytes.Index(line, []byte(": ")); at >= 0 {
		return at
	}
	if line[len(line)-1] == ':' {
		return len(line) - 1
	}
	return -1
}

// special says whether what begins here is not plain text by its first character.
func special(text []byte) bool {
	return strings.IndexByte("{}[]&*!|>%@`?#,:\"'", text[0]) >= 0 || text[0] == '-' && (len(text) == 1 || text[1] == ' ')
}

// scalar reads a value that begins on the line of its key or dash, which has indent spaces, and goes on to the next line.
func (p *plain) scalar(text []byte, indent int) {
	switch text[0] {
	case '"':
		p.doubleQuoted(text)
	case '\'':
		p.singleQuoted(text)
	case '|':
		p.literal(text, indent)
		return
	case '{', '[':
		if s := string(text); s != "{}" && s != "[]" {
			p.giveUp()
			return
		}
		p.out = append(p.out, text...)
	default:
		p.unquoted(text)
	}
	p.next()
	if p.text != nil && p.indent > indent { // the scalar goes on there
		p.giveUp()
	}
}

func (p *plain) unquoted(text []byte) {
	if special(text) || colon(text) >= 0 || bytes.Contains(text, []byte(" #")) {
		p.giveUp()
		return
	}
	if isText(text) {
		p.out = appendString(p.out, text)
		return
	}
	if len(text) < 18 && text[0] != '0' && len(bytes.Trim(text, "0123456789")) == 0 {
		p.out = append(p.out, text...)
		return
	}
	value, err := scalarJSON(&yaml.Node{Kind: yaml.ScalarNode, Value: string(text)})
	if err != nil {
		p.giveUp()
		return
	}
	p.out = append(p.out, value...)
}

// isString says whether an unquoted scalar is a string.
func isString(text []byte) bool {
	return isText(text) || (&yaml.Node{Kind: yaml.ScalarNode, Value: string(text)}).ShortTag() == "!!str"
}

// isText says whether an unquoted scalar can be nothing but a string. Others are for the YAML library to tell.
func isText(text []byte) bool {
	switch c := text[0]; {
	case c >= '0' && c <= '9': // no number and no time has one of these letters, most quantities do
		return bytes.ContainsAny(text, "GHIJKLMNPQRSUVWYghijklmnpqrsuvwy")
	case strings.IndexByte("+-.~<=", c) >= 0:
		return false
	case len(text) > len("false"):
		return true
	}
	switch strings.ToLower(string(text)) {
	case "null", "true", "false", "y", "n", "yes", "no", "on", "off":
		return false
	}
	return true
}

func (p *plain) doubleQuoted(text []byte) {
	end := 1
	for ; end < len(text) && text[end] != '"'; end++ {
		if text[end] != '\\' {
			continue
		}
		if end++; end >= len(text) || strings.IndexByte(`"\bfnrt`, text[end]) < 0 {
			p.giveUp() // an escape that JSON does not have, or a line break
			return
		}
	}
	if end != len(text)-1 {
		p.giveUp()
		return
	}
	p.out = append(p.out, text...)
}

func (p *plain) singleQuoted(text []byte) {
	inner := text[1:]
	if len(inner) == 0 || inner[len(inner)-1] != '\'' {
		p.giveUp()
		return
	}
	inner = inner[:len(inner)-1]
	if bytes.IndexByte(inner, '\'') >= 0 {
		unquoted := bytes.ReplaceAll(inner, []byte("''"), nil)
		if bytes.IndexByte(unquoted, '\'') >= 0 {
			p.giveUp()
			return
		}
		inner = bytes.ReplaceAll(inner, []byte("''"), []byte("'"))
	}
	p.out = appendString(p.out, inner)
}

// literal reads a block scalar: the lines below that are indented by more than indent spaces, as they are.
func (p *plain) literal(text []byte, indent int) {
	if s := string(text); s != "|" && s != "|-" {
		p.giveUp()
		return
	}
	content, width := p.literalLines()
	if width <= indent {
		p.giveUp()
		return
	}
	content = bytes.TrimRight(content, "\n")
	if len(text) == 1 {
		content = append(content, '\n')
	}
	p.out = appendString(p.out, content)
	p.next()
	if p.text != nil && p.indent > indent {
		p.giveUp()
	}
}

// literalLines reads the lines of a block scalar, which are indented by as many spaces as the first; it goes to the first
// line that is indented by fewer. A width below 0: there are none, or they are not plain.
func (p *plain) literalLines() (content []byte, width int) {
	width = -1
	for len(p.left) > 0 {
		end := lineEnd(p.left, 0)
		line := bytes.TrimSuffix(p.left[:end], []byte("\n"))
		n := len(line) - len(bytes.TrimLeft(line, " "))
		if width < 0 {
			width = n
		}
		if n < len(line) && n < width {
			break
		}
		if p.left[end-1] != '\n' || !printable(line) || n == len(line) && (len(content) == 0 || n > width) {
			return nil, -1 // spaces that only count by rules of their own, or a last line without an end
		}
		content = append(append(content, line[min(width, n):]...), '\n')
		p.left = p.left[end:]
	}
	return content, width
}

// appendString appends printable text and line breaks as a JSON string.
func appendString(out, text []byte) []byte {
	out = append(out, '"')
	for _, c := range text {
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, '\\', 'n')
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}
