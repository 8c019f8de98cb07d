package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// TextOptions configure the text of a report.
type TextOptions struct {
	// Width is the number of columns at which prose is wrapped and tables are cut; 0 for
	// never.
	Width int
	// Color colors the verdict with ANSI sequences.
	Color bool
}

// good says what was examined.
func (r *Report) good() string {
	if r.Runtime == "" && r.Daemon != nil {
		return strings.TrimPrefix(r.Daemon.Verdict.Text, "OK: ")
	}
	return fmt.Sprintf("no known cause of an unhealthy PLEG fits; %d pods answer, the lists take %s", r.Counts.Pods, seconds(r.Relist.ListSeconds))
}

// Print writes the report as text: the verdict and what to do, then the tables. It
// returns the error of w.
func (r *Report) Print(w io.Writer, o TextOptions) error {
	var b strings.Builder
	o.head(&b, r.Verdict, r.Findings)
	for _, f := range r.Findings[min(1, len(r.Findings)):] {
		b.WriteString(view.Wrap("Also "+string(f.Severity)+": "+view.Printable(f.Summary), o.Width, "  "))
	}
	b.WriteByte('\n')
	r.printAbout(&b, o.Width)
	if len(r.Calls) > 0 {
		r.printCalls(&b, o.Width)
	}
	if len(r.Lists) > 0 {
		r.printLists(&b, o.Width)
	}
	r.printItems(&b, o.Width)
	switch {
	case !r.Healthy():
		return o.write(w, b.String(), view.Red)
	case len(r.Findings) > 0:
		return o.write(w, b.String(), view.Yellow)
	}
	return o.write(w, b.String(), view.Green)
}

// head adds a verdict, and what to do about the first finding.
func (o TextOptions) head(b *strings.Builder, text string, findings []verdict.Finding) {
	b.WriteString(view.Wrap(text, o.Width, "  "))
	if len(findings) > 0 && findings[0].Advice != "" {
		b.WriteString(view.Wrap("  Do: "+view.Printable(findings[0].Advice), o.Width, "      "))
	}
}

// write writes a text that begins with a severity, which gets the color.
func (o TextOptions) write(w io.Writer, text, color string) error {
	text = view.PrintableLines(text)
	if severity, rest, ok := strings.Cut(text, ":"); ok && o.Color {
		text = "\x1b[" + color + "m" + severity + "\x1b[0m:" + rest
	}
	_, err := io.WriteString(w, text)
	return err
}

// printAbout prints what was examined.
func (r *Report) printAbout(b *strings.Builder, width int) {
	if r.Endpoint != "" {
		fact(b, width, "Runtime", "%s at %s (from %s), examined in %s", cmp.Or(r.Runtime, "none"), r.Endpoint, r.Source, seconds(r.TookSeconds))
	}
	if d := r.Daemon; d != nil {
		fact(b, width, "Daemon", "%s, %s", d.Socket, d.Verdict.Text)
	}
	for _, c := range r.Conditions {
		if !c.Status {
			fact(b, width, "Condition", "not %s: %s %s", c.Type, c.Reason, c.Message)
		}
	}
}
