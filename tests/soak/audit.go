package soak

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// audit compares the stories with the truth, once what is believed equals it:
// each container's last event says its state, whose exit code is right, and what
// is gone was told to be removed. Where events were missed they may have holes,
// which are closed here.
func (m *mirror) audit(truth Truth) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Compared++
	known := make(map[pleg.ContainerID]bool)
	for uid, pod := range truth {
		for id, c := range pod.Containers {
			if known[id] = true; m.wants(pod, c) {
				m.auditOne(uid, id, c)
			}
		}
	}
	for id, s := range m.stories {
		if known[id] {
			continue
		}
		if s.absent++; s.absent < forgetAfter {
			continue
		}
		if s.step != removed && !s.loose {
			m.problem("container %.12s of pod %s is gone, told was step %d", id, s.pod, s.step)
		}
		delete(m.stories, id)
	}
	for uid := range m.pods {
		if _, ok := truth[uid]; !ok {
			delete(m.pods, uid)
		}
	}
	for uid := range m.observed {
		if _, ok := truth[uid]; !ok {
			delete(m.observed, uid)
			delete(m.recent, uid)
		}
	}
	clear(m.loose)
}

func (m *mirror) auditOne(uid pleg.PodUID, id pleg.ContainerID, c Container) {
	want := untold
	switch c.State {
	case pleg.StateRunning:
		want = started
	case pleg.StateExited:
		want = died
	}
	s := m.stories[id]
	if s == nil {
		s = &story{pod: uid, loose: m.loose[uid]}
		m.stories[id] = s
	}
	if s.step != want && !s.loose {
		m.problem("container %.12s of pod %s is %v, told was step %d", id, uid, c.State, s.step)
	}
	s.step, s.loose = want, false
	if !c.Sandbox && want == died && s.exit != nil && *s.exit != c.ExitCode {
		m.problem("container %.12s of pod %s has exit code %d, told was %d", id, uid, c.ExitCode, *s.exit)
		s.exit = nil // said once
	}
}
