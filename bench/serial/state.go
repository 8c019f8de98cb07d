package serial

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// RequestReinspect makes the next relist inspect the pod even if nothing about
// it changed. A request for a pod that is not known waits until it is.
func (p *PLEG) RequestReinspect(uid pleg.PodUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reinspect[uid] = struct{}{}
}

// Status returns the pod's last status, or the error of its last inspection.
// A pod that is not known has a status with nothing but its UID.
func (p *PLEG) Status(uid pleg.PodUID) (*pleg.PodStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.cache[uid]
	if !ok {
		return &pleg.PodStatus{UID: uid}, nil
	}
	return e.status, e.err
}

// Discarded returns how many events found no room in Options.Events.
func (p *PLEG) Discarded() uint64 {
	return p.discarded.Load()
}

// takeReinspect clears the request before the inspection begins, so that one
// made meanwhile is kept for the next relist.
func (p *PLEG) takeReinspect(uid pleg.PodUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.reinspect[uid]
	delete(p.reinspect, uid)
	return ok
}

func (p *PLEG) set(uid pleg.PodUID, e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cache[uid] = e
}

// forget drops a pod that is gone.
func (p *PLEG) forget(uid pleg.PodUID) {
	delete(p.records, uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cache, uid)
}
