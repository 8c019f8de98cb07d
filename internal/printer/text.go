package printer

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// idWidth is how much of an id crictl shows.
const idWidth = 13

// column is one column of the text. Values come one by one, so a column starts
// as wide as what is usual and grows for good when a longer value comes: lines
// shift seldom, and nothing is cut.
type column struct {
	name  string
	width int
	value func(ev *pleg.Event) string
}

func columns() []column {
	return []column{
		{"TIME", len("15:04:05.000"), func(ev *pleg.Event) string { return ev.ObservedAt.Format("15:04:05.000") }},
		{"EVENT", len(pleg.ContainerStarted), func(ev *pleg.Event) string { return string(ev.Type) }},
		{"NAMESPACE", len("kube-system"), namespace},
		{"POD", 32, podName},
		{"CONTAINER", 16, containerName},
		{"ATTEMPT", len("ATTEMPT"), attempt},
		{"ID", idWidth, func(ev *pleg.Event) string { return shortID(string(ev.ContainerID)) }},
		{"DETAILS", 0, details},
	}
}

type textPrinter struct {
	w       io.Writer
	options Options
	columns []column
	line    bytes.Buffer
}

func newText(w io.Writer, o Options) *textPrinter {
	return &textPrinter{w: w, options: o, columns: columns()}
}

func (p *textPrinter) Start() error {
	if !p.options.Headers {
		return nil
	}
	for _, c := range p.columns {
		p.cell(c.name, c.width, "")
	}
	return p.flush()
}

func (p *textPrinter) Print(ev pleg.Event) error {
	ev.ObservedAt = ev.ObservedAt.In(time.Local)
	for i := range p.columns {
		c := &p.columns[i]
		value := printable(c.value(&ev))
		c.width = max(c.width, utf8.RuneCountInString(value))
		color := ""
		if p.options.Color && c.name == "EVENT" {
			color = colorOf(&ev)
		}
		p.cell(value, c.width, color)
	}
	return p.flush()
}

func (p *textPrinter) cell(value string, width int, color string) {
	if color != "" {
		p.line.WriteString("\x1b[" + color + "m")
	}
	p.line.WriteString(value)
	if color != "" {
		p.line.WriteString("\x1b[0m")
	}
	p.line.WriteString(strings.Repeat(" ", max(0, width-utf8.RuneCountInString(value))+2))
}

func (p *textPrinter) flush() error {
	line := append(bytes.TrimRight(p.line.Bytes(), " "), '\n')
	_, err := p.w.Write(line)
	p.line.Reset()
	return err
}

func namespace(ev *pleg.Event) string {
	if ev.PodNamespace == "" {
		return "-"
	}
	return ev.PodNamespace
}

func podName(ev *pleg.Event) string {
	if ev.PodName != "" {
		return ev.PodName
	}
	return string(ev.PodUID)
}

// containerName marks a sandbox with brackets, which no container name holds.
func containerName(ev *pleg.Event) string {
	switch {
	case ev.Sandbox:
		return "(sandbox)"
	case ev.ContainerName == "":
		return "-"
	}
	return ev.ContainerName
}

func attempt(ev *pleg.Event) string {
	if ev.ContainerID == "" {
		return "-"
	}
	return strconv.FormatUint(uint64(ev.Attempt), 10)
}

func shortID(id string) string {
	switch {
	case id == "":
		return "-"
	case len(id) > idWidth:
		return id[:idWidth]
	}
	return id
}

func details(ev *pleg.Event) string {
	switch {
	case ev.Missed > 0:
		return fmt.Sprintf("%d events missed", ev.Missed)
	case ev.ExitCode != nil && ev.Reason != "":
		return fmt.Sprintf("exit %d, %s", *ev.ExitCode, ev.Reason)
	case ev.ExitCode != nil:
		return fmt.Sprintf("exit %d", *ev.ExitCode)
	}
	return ev.Reason
}

// printable keeps what a runtime reports from moving the cursor or breaking
// the line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func colorOf(ev *pleg.Event) string {
	const red, green, yellow, faint = "31", "32", "33", "2"
	switch ev.Type {
	case pleg.ContainerStarted:
		return green
	case pleg.ContainerDied:
		if ev.ExitCode != nil && *ev.ExitCode == 0 || ev.Sandbox {
			return yellow
		}
		return red
	case pleg.ContainerRemoved:
		return faint
	default:
		return yellow
	}
}
