package wire

import (
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// FromPod returns the message of a listed pod, a status with only the facts of a list. It
// returns nil for nil.
func FromPod(p *pleg.Pod) *plegv1.PodStatus {
	if p == nil {
		return nil
	}
	m := &plegv1.PodStatus{Uid: Text(string(p.UID)), Name: Text(p.Name), Namespace: Text(p.Namespace)}
	for _, c := range p.Containers {
		m.Containers = append(m.Containers, &plegv1.ContainerStatus{
			Id: Text(string(c.ID)), Name: Text(c.Name), Attempt: c.Attempt, State: states[c.State], CreatedAt: FromTime(c.CreatedAt),
		})
	}
	for _, s := range p.Sandboxes {
		m.Sandboxes = append(m.Sandboxes, &plegv1.SandboxStatus{
			Id: Text(string(s.ID)), Attempt: s.Attempt, Ready: s.State == pleg.StateRunning, CreatedAt: FromTime(s.CreatedAt),
			Labels: textMap(p.Labels),
		})
	}
	return m
}

// ToPod returns the pod of a message of [FromPod], or nil for nil.
func ToPod(m *plegv1.PodStatus) *pleg.Pod {
	if m == nil {
		return nil
	}
	p := &pleg.Pod{UID: pleg.PodUID(m.GetUid()), Name: m.GetName(), Namespace: m.GetNamespace()}
	for _, c := range m.GetContainers() {
		p.Containers = append(p.Containers, &pleg.Container{
			ID: pleg.ContainerID(c.GetId()), Name: c.GetName(), Attempt: c.GetAttempt(), State: toState(c.GetState()),
			CreatedAt: ToTime(c.GetCreatedAt()),
		})
	}
	for _, s := range m.GetSandboxes() {
		state := pleg.StateExited
		if s.GetReady() {
			state = pleg.StateRunning
		}
		p.Sandboxes = append(p.Sandboxes, &pleg.Container{
			ID: pleg.ContainerID(s.GetId()), Name: p.Name, Attempt: s.GetAttempt(), State: state, CreatedAt: ToTime(s.GetCreatedAt()),
		})
		p.Labels = s.GetLabels()
	}
	return p
}
