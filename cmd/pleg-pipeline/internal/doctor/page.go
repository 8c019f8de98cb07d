package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// page is the text of a report.
type page struct {
	strings.Builder
	width int // at which prose is wrapped and tables are cut; 0 for never
}

// head adds a verdict, and what to do about the first finding.
func (p *page) head(text string, findings []verdict.Finding) {
	p.prose("  ", "%s", text)
	if len(findings) > 0 && findings[0].Advice != "" {
		p.prose("      ", "  Do: %s", findings[0].Advice)
	}
}

// prose adds text whose further lines are indented.
func (p *page) prose(indent, format string, args ...any) {
	p.WriteString(view.Wrap(view.Printable(fmt.Sprintf(format, args...)), p.width, indent))
}

// factIndent is the column at which the text of a fact begins.
const factIndent = 12

// fact adds a line of the form "Name        text", wrapped.
func (p *page) fact(name, format string, args ...any) {
	text := view.Wrap(view.Printable(fmt.Sprintf(format, args...)), max(0, p.width-factIndent), strings.Repeat(" ", factIndent))
	fmt.Fprintf(p, "%-*s%s", factIndent, name, text)
}

// table adds rows. It cuts the values of one column in the middle, so that the rows fit. At least
// 12 characters stay.
func (p *page) table(rows [][]string, column int) {
	const gap = 2
	room := p.width
	for i := range rows[0] {
		longest := 0
		for _, row := range rows {
			row[i] = view.Printable(row[i])
			longest = max(longest, utf8.RuneCountInString(row[i]))
		}
		if i != column {
			room -= longest + gap
		}
	}
	t := tabwriter.NewWriter(p, 0, 0, gap, ' ', 0)
	for _, row := range rows {
		if p.width > 0 {
			row[column] = view.Cut(row[column], max(12, room))
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // into memory
}

// write writes the page. It begins with a severity, in its color.
func (p *page) write(w io.Writer, o TextOptions) error {
	text := view.PrintableLines(p.String())
	if word, rest, ok := strings.Cut(text, ":"); ok && o.Color {
		color := map[string]string{"PROBLEM": view.Red, "OK": view.Green}[word]
		text = "\x1b[" + cmp.Or(color, view.Yellow) + "m" + word + "\x1b[0m:" + rest
	}
	_, err := io.WriteString(w, text)
	return err
}

// seconds formats a duration with about three significant digits.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}
