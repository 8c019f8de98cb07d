package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Column is one column of a table of values of one type.
type Column[T any] struct {
	Name string
	// Width is a usual width, Least the width to which [Fit] may narrow the column; 0 for not at
	// all.
	Width, Least int
	Value        func(v *T) string
	// Color returns the ANSI color of a value. If nil, there is none.
	Color func(v *T) string

	layouts layout // the tables that contain the column
}

// layout is a set of tables.
type layout int

const (
	narrow layout = 1 << iota
	usual
	wide
	nodes // only if there are nodes
	all   = narrow | usual | wide
)

func in[T any](l layout, columns []Column[T]) []Column[T] {
	return slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool {
		return c.layouts&l&all == 0 || c.layouts&nodes > l&nodes
	})
}

// layoutOf returns wide or usual.
func layoutOf(o PrintOptions) layout {
	l := usual
	if o.Format == Wide {
		l = wide
	}
	if o.Nodes {
		l |= nodes
	}
	return l
}

const (
	// gap is the number of spaces between two columns.
	gap = 2
	// detailsWidth is the room that the details of events need: "exit 137, OOMKilled".
	detailsWidth = 19
	// nodeWidth is a usual width of the names of nodes.
	nodeWidth = 16
	// idWidth is the length of the ids that crictl prints.
	idWidth = 13
)

const fullTime = "2006-01-02T15:04:05.000Z07:00"

var eventTable = []Column[fleet.Event]{
	{Name: "SEQ", Width: 8, layouts: wide, Value: func(ev *fleet.Event) string { return strconv.FormatUint(ev.Seq, 10) }},
	{Name: "TIME", Width: 8, layouts: narrow, Value: func(ev *fleet.Event) string { return clock(ev.ObservedAt, "15:04:05") }},
	{Name: "TIME", Width: 12, layouts: usual, Value: func(ev *fleet.Event) string { return clock(ev.ObservedAt, "15:04:05.000") }},
	{Name: "TIME", Width: len(fullTime), layouts: wide, Value: func(ev *fleet.Event) string { return clock(ev.ObservedAt, fullTime) }},
	{Name: "NODE", Width: nodeWidth, Least: 6, layouts: all | nodes, Value: func(ev *fleet.Event) string { return cmp.Or(ev.Node, "-") }},
	{Name: "EVENT", Width: len(pleg.ContainerStarted), layouts: all, Value: func(ev *fleet.Event) string { return string(ev.Type) }, Color: EventColor},
	{Name: "NAMESPACE", Width: len("kube-system"), layouts: usual | wide, Value: func(ev *fleet.Event) string { return cmp.Or(ev.PodNamespace, "-") }},
	{Name: "POD", Width: 32, layouts: usual | wide, Value: podName},
	{Name: "POD", Width: 44, Least: 20, layouts: narrow, Value: fullPodName},
	{Name: "POD UID", Width: 36, layouts: wide, Value: func(ev *fleet.Event) string { return cmp.Or(string(ev.PodUID), "-") }},
	{Name: "CONTAINER", Width: 16, Least: len("(sandbox)"), layouts: all, Value: func(ev *fleet.Event) string { return cmp.Or(ContainerName(&ev.Event), "-") }},
	{Name: "ATTEMPT", Width: len("ATTEMPT"), layouts: usual | wide, Value: attempt},
	{Name: "ID", Width: idWidth, layouts: usual, Value: func(ev *fleet.Event) string { return ShortID(string(ev.ContainerID)) }},
	{Name: "ID", Width: idWidth, layouts: wide, Value: func(ev *fleet.Event) string { return cmp.Or(string(ev.ContainerID), "-") }},
	{Name: "IMAGE", Width: 32, layouts: wide, Value: func(ev *fleet.Event) string { return cmp.Or(ev.Image, "-") }},
	{Name: "STARTED", Width: len(fullTime), layouts: wide, Value: func(ev *fleet.Event) string { return clock(ev.StartedAt, fullTime) }},
	{Name: "FINISHED", Width: len(fullTime), layouts: wide, Value: func(ev *fleet.Event) string { return clock(ev.FinishedAt, fullTime) }},
	{Name: "DETAILS", layouts: all, Value: eventDetails},
}

// eventColumns returns the columns for a format and a terminal.
func eventColumns(o PrintOptions) []Column[fleet.Event] {
	l := layoutOf(o)
	columns := in(l, eventTable)
	if l&wide == 0 && o.Width > 0 && total(columns, gap)+detailsWidth > o.Width {
		columns = in(narrow|l&nodes, eventTable)
		Fit(columns, gap, o.Width-detailsWidth)
	}
	return columns
}

var podTable = []Column[Pod]{
	{Name: "NODE", Width: nodeWidth, Least: 6, layouts: all | nodes, Value: func(p *Pod) string { return cmp.Or(p.Node, "-") }},
	{Name: "NAMESPACE", Width: len("kube-system"), Least: 9, layouts: all, Value: func(p *Pod) string { return cmp.Or(p.Namespace, "-") }},
	{Name: "POD", Width: 32, Least: 16, layouts: all, Value: (*Pod).Label},
	{Name: "STATE", Width: len(NotReady), layouts: all, Value: func(p *Pod) string { return p.State }, Color: PodColor},
	{Name: "RUNNING", Width: len("RUNNING"), layouts: all, Value: func(p *Pod) string { return fmt.Sprintf("%d/%d", p.Running, p.Total) }},
	{Name: "RESTARTS", Width: len("RESTARTS"), layouts: all, Value: func(p *Pod) string { return strconv.FormatUint(p.Restarts, 10) }},
	{Name: "AGE", Width: 4, layouts: all, Value: func(p *Pod) string { return Ago(p.CreatedAt(), time.Now()) }},
	{Name: "KNOWN", Width: len("KNOWN"), layouts: all, Value: func(p *Pod) string { return Ago(p.CurrentAsOf, time.Now()) }},
	{Name: "IP", Width: 15, layouts: wide, Value: func(p *Pod) string { return cmp.Or(strings.Join(p.IPs, ","), "-") }},
	{Name: "POD UID", Width: 36, layouts: wide, Value: func(p *Pod) string { return string(p.UID) }},
	{Name: "DETAILS", layouts: all, Value: podDetails},
}

func podColumns(o PrintOptions) []Column[Pod] {
	columns := in(layoutOf(o), podTable)
	if o.Width > 0 && o.Format != Wide {
		Fit(columns, gap, o.Width)
	}
	return columns
}

// Fit makes all columns except the last fit into a width, with a gap after each: it narrows columns
// down to their Least, the widest column first.
func Fit[T any](columns []Column[T], gap, width int) {
	for total(columns, gap) > width {
		var widest *Column[T]
		for i := range columns {
			if c := &columns[i]; c.Least > 0 && c.Width > c.Least && (widest == nil || c.Width > widest.Width) {
				widest = c
			}
		}
		if widest == nil {
			return
		}
		widest.Width--
	}
}

// total returns the width of all columns but the last, with the gaps after them.
func total[T any](columns []Column[T], gap int) int {
	sum := 0
	for _, c := range columns[:len(columns)-1] {
		sum += c.Width + gap
	}
	return sum
}

func clock(at time.Time, format string) string {
	if at.IsZero() {
		return "-"
	}
	return at.In(time.Local).Format(format)
}

func podName(ev *fleet.Event) string { return cmp.Or(ev.PodName, string(ev.PodUID), "-") }

func fullPodName(ev *fleet.Event) string {
	return cmp.Or(fullName(ev.PodNamespace, ev.PodName, ev.PodUID), "-")
}

func attempt(ev *fleet.Event) string {
	if ev.ContainerID == "" {
		return "-"
	}
	return strconv.FormatUint(uint64(ev.Attempt), 10)
}

// ShortID returns the first characters of an id, as crictl does, or - for none.
func ShortID(id string) string {
	if len(id) > idWidth {
		return id[:idWidth]
	}
	return cmp.Or(id, "-")
}
