package look

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
)

// PageWidth is the maximum width of the lines of an explanation, except for longer words.
const PageWidth = 120

// page is text that is wrapped to [PageWidth].
type page struct{ strings.Builder }

// line writes a lead and the wrapped text after it.
func (p *page) line(indent int, lead, text string) {
	room := PageWidth - indent - utf8.RuneCountInString(lead)
	p.WriteString(strings.Repeat(" ", indent) + lead)
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > room:
			p.WriteString("\n" + strings.Repeat(" ", indent+utf8.RuneCountInString(lead)))
			at = 0
		default:
			p.WriteByte(' ')
			at++
		}
		p.WriteString(word)
		at += n
	}
	p.WriteByte('\n')
}

func (p *page) heading(text string) { fmt.Fprintf(p, "\n%s\n", text) }

// PodPage writes the explanation of a pod as text.
type PodPage struct{ explain.Explanation }

// Write writes the explanation as text.
func (x *PodPage) Write(w io.Writer) error {
	var p page
	p.line(0, "pod ", describeSubject(x.Pod, x.Time))
	if !x.isUnknown(explain.PartHistory) {
		x.writeHistory(&p)
	}
	if len(x.Opinions) > 0 {
		x.writeOpinions(&p)
	}
	if x.Pod.UID != "" {
		x.writeProtections(&p)
	}
	if len(x.Unknown) > 0 {
		p.heading("Unknown")
	}
	for _, u := range x.Unknown {
		p.line(2, "", u.What+": "+u.Why)
	}
	_, err := io.WriteString(w, cmdutil.PrintableLines(p.String()))
	return err
}

func (x *PodPage) isUnknown(part string) bool {
	for _, u := range x.Unknown {
		if u.What == part {
			return true
		}
	}
	return false
}

func describeSubject(s explain.Subject, now time.Time) string {
	switch {
	case s.There == nil:
		return s.String()
	case !*s.There:
		return s.String() + " is not in the cluster"
	}
	text := s.String() + " has no node"
	if s.Node != "" {
		text = s.String() + " is on " + s.Node
	}
	text += ", " + s.Phase
	if s.Deleted {
		text += ", being deleted"
	}
	text += ", " + cmdutil.Age(now, s.Created) + " old"
	if s.Workload != nil {
		text += ", of " + s.Workload.String()
	}
	return text
}

func (x *PodPage) writeHistory(p *page) {
	title := "History"
	if !x.Since.IsZero() {
		title += " since " + x.Since.Local().Format(time.DateTime)
	}
	p.heading(title)
	if len(x.History) == 0 {
		p.line(2, "", "none known")
	}
	for _, l := range x.History {
		if len(x.History) > 1 || x.Pod.UID != "" && l.Pod.UID != x.Pod.UID {
			which := ""
			if l.Pod.UID == x.Pod.UID {
				which = ", the current one"
			}
			p.line(2, "", fmt.Sprintf("Pod with UID %s%s", l.Pod.UID, which))
		}
		x.writeLife(p, l)
	}
}

func (x *PodPage) writeLife(p *page, l explain.Life) {
	if l.CameFor != nil {
		p.line(2, "", "It replaced "+l.CameFor.String()+", which was moved.")
	}
	for _, c := range l.Chains {
		what := c.Without
		if c.Delta != nil {
			about, text := c.Delta.Describe()
			what = about + " " + text
		}
		p.line(2, c.Began.Local().Format("2006-01-02 15:04:05.000")+"  ", what)
		for _, s := range c.Steps {
			x.writeStep(p, s, c.Began)
		}
	}
	var changes []string
	for _, c := range l.Changes {
		_, aspect, _ := strings.Cut(string(c.Kind), ".")
		text := aspect
		if c.Times > 1 {
			text = fmt.Sprintf("%s %d times, last", aspect, c.Times)
		}
		changes = append(changes, text+" at "+c.Last.Local().Format(time.DateTime))
	}
	if len(changes) > 0 {
		p.line(2, "", "Changes without intents: "+strings.Join(changes, "; "))
	}
}

// writeStep writes an intent and its verdicts.
func (x *PodPage) writeStep(p *page, s explain.Step, began time.Time) {
	where := ""
	if s.Node != "" {
		where = " off " + s.Node
	}
	p.line(4, after(s.Time, began), fmt.Sprintf("%s (%s, %s) wants it%s: %s", s.Strategy, s.Profile, s.Scope, where, s.Why))
	if s.Outcome == "" {
		text := "no verdict yet"
		if !s.Expires.IsZero() && s.Expires.Before(x.Time) {
			text = "no verdict is known; the intent expired at " + s.Expires.Local().Format(time.DateTime)
		}
		p.line(6, strings.Repeat(" ", afterWidth), text)
		return
	}
	if s.Outcome != schemas.Settled {
		p.line(6, after(s.Said, began), x.describeStep(s))
	}
	if s.Settled != nil {
		p.line(8, after(s.Settled.Time, began), describeEnd(*s.Settled))
	}
}

// describeStep describes a verdict, and how often it was repeated.
func (x *PodPage) describeStep(s explain.Step) string {
	text := string(s.Outcome)
	if s.DryRun {
		text += " (dry run)"
	}
	if s.Moves() {
		return text + schemas.Verdict{Method: s.Method, Instead: s.Instead}.DescribeMethod() + ": " + s.Message
	}
	if s.Times > 1 {
		text += fmt.Sprintf(" %d times", s.Times)
	}
	text += fmt.Sprintf(": %s: %s", s.Reason, s.Message)
	if s.Times > 1 {
		text += "; last at " + s.Last.Local().Format(time.DateTime)
	}
	if s.Again.After(x.Time) {
		text += "; again at " + s.Again.Local().Format(time.DateTime) + " at the earliest"
	}
	return text
}

func describeEnd(s explain.Settled) string {
	text := fmt.Sprintf("settled after %.1fs: %s", s.Seconds, s.Reason)
	if s.Replacement == nil {
		return text + ": " + s.Message
	}
	text += ": replacement " + s.Replacement.Name
	if s.Node != "" {
		text += " on " + s.Node
	}
	return text
}

// afterWidth is the width of the column of times.
const afterWidth = 9

// after formats a time since the change.
func after(at, began time.Time) string {
	d := max(at.Sub(began), 0)
	text := fmt.Sprintf("+%.3fs", d.Seconds())
	if d >= time.Minute {
		text = "+" + d.Truncate(time.Second).String()
	}
	return fmt.Sprintf("%-*s", afterWidth, text+" ")
}

func (x *PodPage) writeOpinions(p *page) {
	p.heading("Strategies")
	width := 0
	for _, o := range x.Opinions {
		width = max(width, len(x.nameOf(o)))
	}
	for _, o := range x.Opinions {
		p.line(2, fmt.Sprintf("%-*s   ", width, x.nameOf(o)), describeOpinion(o))
	}
	if x.Replacement != "" {
		p.line(2, "", "If it moved now, its replacement "+x.Replacement+".")
	}
}

// nameOf adds the profile if there are several.
func (x *PodPage) nameOf(o simulate.Opinion) string {
	if len(x.Guards) > 1 {
		return o.Profile + ": " + o.Strategy
	}
	return o.Strategy
}

func describeOpinion(o simulate.Opinion) string {
	switch {
	case o.Unknown != "":
		return "unknown: " + o.Unknown
	case o.Wants:
		return "wants it moved: " + o.Reason
	case o.Protected:
		return "would want it moved if nothing protected it: " + o.Reason
	case o.Vain && o.Reason == "":
		return "leaves it where it is: its replacement has no better node"
	case o.Vain:
		return "leaves it where it is: its replacement has no better node, although " + o.Reason
	case !o.Due.IsZero():
		return "will want it moved at " + o.Due.Local().Format(time.DateTime) + ", unless it changes"
	}
	return "leaves it where it is"
}

func (x *PodPage) writeProtections(p *page) {
	p.heading("Protections")
	before := p.Len()
	for _, g := range x.Guards {
		if len(g.Rules) == 0 {
			p.line(2, "profile "+g.Profile+": ", "nothing")
		}
		for _, r := range g.Rules {
			p.line(2, "profile "+g.Profile+": ", r.Rule+": "+r.Detail)
		}
	}
	for _, b := range x.Budgets {
		text := b.Message
		if b.Allowed > 0 {
			text = fmt.Sprintf("poddisruptionbudget %s/%s: allows %s now", x.Pod.Namespace, b.Name,
				cmdutil.Count(int(b.Allowed), "disruption"))
		}
		p.line(2, "", text)
	}
	if len(x.Budgets) > 1 {
		p.line(2, "", explain.SeveralBudgets)
	}
	writeHeld(p, x)
	if p.Len() == before {
		p.line(2, "", "none known")
	}
}

func writeHeld(p *page, x *PodPage) {
	h := x.Held
	for _, c := range h.Storm {
		p.line(2, "", fmt.Sprintf("the cluster circuit breaker has been open since %s: %s: %s",
			c.Since.Local().Format(time.DateTime), c.Reason, c.Message))
	}
	for _, l := range h.WorkloadBreakers {
		const text = "a workload circuit breaker stops %s from moving pods of %s off %s until %s: pods came back %s"
		p.line(2, "", fmt.Sprintf(text, l.Strategy,
			workload(l.Name, string(l.Workload)), l.Node, l.Until.Local().Format(time.DateTime), cmdutil.Count(l.Returns, "time")))
	}
	for _, m := range h.Moves {
		which := "it is being moved"
		if m.Pod.UID != x.Pod.UID {
			which = m.Pod.String() + " of its workload is being moved"
		}
		p.line(2, "", fmt.Sprintf("%s since %s, and waits for %s", which, m.Begun.Local().Format(time.DateTime), m.WaitsFor))
	}
	for _, b := range h.Maintenances {
		p.line(2, "", describeBlock(b))
	}
}

// describeBlock says why a maintenance cannot move the pod.
func describeBlock(b explain.Block) string {
	text := fmt.Sprintf("maintenance %s wants it off %s and cannot move it", b.Maintenance, b.Node)
	if b.DryRun {
		text = fmt.Sprintf("maintenance %s (dry run) would want it off %s and could not move it", b.Maintenance, b.Node)
	}
	if b.Since != nil {
		text += ", since " + b.Since.Local().Format(time.DateTime)
	}
	for _, why := range []string{b.Reason, b.By, b.Message} {
		if why != "" {
			text += ": " + why
		}
	}
	return text
}
