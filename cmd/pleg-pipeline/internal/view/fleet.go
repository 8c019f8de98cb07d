package view

import (
	"cmp"
	"io"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// nodeWidth is a usual width of the names of nodes.
const nodeWidth = 16

// FleetEventPrinter is [EventPrinter] with the node of each event.
func FleetEventPrinter(w io.Writer, o PrintOptions) Printer[fleet.Event] {
	of := eventColumns()
	at := 1
	switch {
	case o.Format.kind == Wide:
		of, at = wideEventColumns(), 2
	case o.Width > 0 && o.Width < total(of)+nodeWidth+gap+detailsWidth:
		of = narrowEventColumns()
	}
	columns := make([]column[fleet.Event], len(of))
	for i, c := range of {
		columns[i] = column[fleet.Event]{name: c.name, width: c.width, least: c.least, value: func(ev *fleet.Event) string { return c.value(&ev.Event) }}
		if c.color != nil {
			columns[i].color = func(ev *fleet.Event) string { return c.color(&ev.Event) }
		}
	}
	columns = slices.Insert(columns, at, column[fleet.Event]{
		name: "NODE", width: nodeWidth, value: func(ev *fleet.Event) string { return cmp.Or(ev.Node, "-") }, least: 6,
	})
	if o.Width > 0 {
		columns = fit(columns, o.Width, detailsWidth)
	}
	return newPrinter(w, o, columns)
}

// FleetPodPrinter is [PodPrinter] with the node of each pod.
func FleetPodPrinter(w io.Writer, o PrintOptions) Printer[Pod] {
	columns := podColumns()
	if o.Format.kind == Wide {
		columns = widePodColumns()
	}
	columns = slices.Insert(columns, 0, column[Pod]{
		name: "NODE", width: nodeWidth, value: func(p *Pod) string { return cmp.Or(p.Node, "-") }, least: 6,
	})
	if o.Width > 0 && o.Format.kind != Wide {
		columns = fit(columns, o.Width, 0)
	}
	return newPrinter(w, o, columns)
}
