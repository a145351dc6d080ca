package notify

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"
)

//go:embed templates/*.tmpl
var templates embed.FS

// Services are the names of the templates in the program.
func Services() []string { return []string{"slack", "teams", "webhook"} }

// Template makes the body of a post of a notification: a JSON document.
type Template struct{ template *template.Template }

// NewTemplate returns the template of a service, or reads the template in the file, unless that is empty. It tries the template
// with an example.
func NewTemplate(service, file string) (Template, error) {
	var text []byte
	var err error
	if file != "" {
		text, err = os.ReadFile(file)
	} else {
		text, err = templates.ReadFile("templates/" + service + ".tmpl")
	}
	if err != nil {
		return Template{}, fmt.Errorf("template: %w", err)
	}
	parsed, err := template.New(service).Option("missingkey=error").Funcs(template.FuncMap{
		"json": toJSON, "join": strings.Join, "slack": slackText,
	}).Parse(string(text))
	if err != nil {
		return Template{}, fmt.Errorf("template: %w", err)
	}
	t := Template{parsed}
	_, err = t.Render(Notification{
		Kind: Moves, Title: `1 pod moved "on" <n1>`, Lines: []string{"shop/api-0: evicted"}, More: 1, Moved: 1, Nodes: []string{"n1"},
		Began: time.Unix(0, 0).UTC(), Ended: time.Unix(0, 0).UTC(),
	})
	return t, err
}

// Render returns the body.
func (t Template) Render(n Notification) ([]byte, error) {
	var body bytes.Buffer
	if err := t.template.Execute(&body, n); err != nil {
		return nil, err
	}
	if !json.Valid(body.Bytes()) {
		return nil, errors.New("template: want JSON; write each value with the function json, such as {\"text\": {{json .Title}}}")
	}
	return body.Bytes(), nil
}

// slackText escapes text for Slack, which otherwise reads links and mentions in it.
func slackText(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
