package printer

import (
	"cmp"
	"io"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// nodeWidth is a usual width of the names of nodes.
const nodeWidth = 16

// FleetEvents is [Events] with the node of each event.
func FleetEvents(w io.Writer, o Options) Printer[fleet.Event] {
	of := eventColumns()
	at := 1
	if o.Format.kind == Wide {
		of, at = wideEventColumns(), 2
	}
	columns := make([]column[fleet.Event], len(of))
	for i, c := range of {
		columns[i] = column[fleet.Event]{name: c.name, width: c.width, value: func(ev *fleet.Event) string { return c.value(&ev.Event) }}
		if c.color != nil {
			columns[i].color = func(ev *fleet.Event) string { return c.color(&ev.Event) }
		}
	}
	return newPrinter(w, o, slices.Insert(columns, at, column[fleet.Event]{
		"NODE", nodeWidth, func(ev *fleet.Event) string { return cmp.Or(ev.Node, "-") }, nil,
	}))
}

// FleetPods is [Pods] with the node of each pod.
func FleetPods(w io.Writer, o Options) Printer[podview.Pod] {
	columns := podColumns()
	if o.Format.kind == Wide {
		columns = widePodColumns()
	}
	return newPrinter(w, o, slices.Insert(columns, 0, column[podview.Pod]{
		"NODE", nodeWidth, func(p *podview.Pod) string { return cmp.Or(p.Node, "-") }, nil,
	}))
}
