package serial

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// RequestReinspect makes the next relist inspect the pod even without a change. A
// request for an unknown pod waits until a list has it.
func (p *PLEG) RequestReinspect(uid pleg.PodUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reinspect[uid] = struct{}{}
}

// Status returns the pod's last status, or the error of its last inspection.
// The status of an unknown pod has only its UID.
func (p *PLEG) Status(uid pleg.PodUID) (*pleg.PodStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.cache[uid]
	if !ok {
		return &pleg.PodStatus{UID: uid}, nil
	}
	return e.status, e.err
}

// Discarded returns how many events did not fit into Options.Events.
func (p *PLEG) Discarded() uint64 {
	return p.discarded.Load()
}

// clearReinspect reports whether there is a request, and removes it before the
// inspection begins: a request during the inspection waits for the next relist.
func (p *PLEG) clearReinspect(uid pleg.PodUID) bool {
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

// forget drops a removed pod.
func (p *PLEG) forget(uid pleg.PodUID) {
	delete(p.records, uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cache, uid)
}
