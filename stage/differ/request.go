package differ

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// request is what is asked for one pod.
type request struct {
	uid pleg.PodUID
	// anew asks for a reinspection; otherwise only the wait of a pod in
	// quarantine ends.
	anew bool
}

// RequestReinspect has the pod inspected anew at the next relist, whether or
// not it changed, and though it may be in quarantine; without a change its
// subscribers get a PodSync. It never blocks and is safe for concurrent use. A
// pod that the next relist does not show is not waited for; Options.Retry is
// called so that it comes soon.
func (d *Differ) RequestReinspect(uid pleg.PodUID) { d.requests.Put(request{uid, true}) }

// RequestRetry ends the wait of a pod in quarantine: the next observation of it
// has it inspected. It never blocks and is safe for concurrent use.
func (d *Differ) RequestRetry(uid pleg.PodUID) { d.requests.Put(request{uid, false}) }

func (d *Differ) takeRequests() {
	for _, r := range d.requests.Take() {
		rec := d.records[r.uid]
		if rec != nil && rec.hang != nil {
			rec.hang.requested = rec.busy
			d.wait(rec, 0)
		}
		if !r.anew {
			continue
		}
		d.retry()
		if rec != nil {
			rec.reinspect = true
		} else {
			d.requested[r.uid] = struct{}{}
		}
	}
}
