package pipeline

import (
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// hints is the pipeline as the event stream sees it.
type hints struct{ *Pipeline }

// RequestRelist ends no inspection: that of a slow runtime would never end.
func (h hints) RequestRelist(uid pleg.PodUID) {
	h.differ.EndWait(uid)
	h.hinter.RequestRelist(uid)
}

func (h hints) RelistAll() { h.lister.RelistNow() }

func (h hints) Announce(hint pleg.Hint) {
	if hint.Status != nil { // the container may be removed before it is inspected
		h.cache.KeepRemoved(hint.Status)
	}
	h.differ.Announce(differ.Announcement{Hint: hint, Tick: h.ticks.Next()})
}

func (h hints) StreamUp(up bool) { h.lister.StreamUp(up) }

func (h hints) Recovered() <-chan struct{} { return h.lister.Recovered() }
