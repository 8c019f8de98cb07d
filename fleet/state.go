package fleet

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// decodeState decodes an entry of a bucket and returns its node. The mark of a removal is an error.
func decodeState(e entry, state any) (node string, err error) {
	if node, err = nodeOf(e.key); err == nil {
		err = json.Unmarshal(e.value, state)
	}
	return node, err
}

// nodeState is the value of a node in [StateBucket]. It is written after the states of
// all its pods, when an epoch begins or a Gap is published.
type nodeState struct {
	// Epoch is the epoch of the states of the node's pods. States of another epoch
	// are about to be replaced or removed.
	Epoch string `json:"epoch"`
	// Seq is the number of the last event that all states included then.
	Seq uint64 `json:"seq"`
	// After is the sequence number of the node's last message before the Gap.
	After uint64 `json:"after"`
}

// podState is the value of a pod in [StateBucket].
type podState struct {
	Epoch string `json:"epoch"`
	// Seq is the number of the last event of the pod that the state includes.
	Seq uint64 `json:"seq"`
	// After is the sequence number of the node's last message when the state was written.
	After     uint64            `json:"after"`
	UID       pleg.PodUID       `json:"uid"`
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Events are the last event of each container and sandbox that is not removed, in
	// the order of their numbers.
	Events []pleg.Event `json:"events"`
	// Status is pleg.v1.PodStatus in the JSON form of protobuf, without annotations.
	Status json.RawMessage `json:"status,omitempty"`
	// Error is the error of the last inspection.
	Error string `json:"error,omitempty"`
}

// isCurrent reports whether the state includes what its node, whose key has this epoch and After, has
// published of the pod. A state of another epoch does if it was written after the node's Gap: an
// agent that begins again writes all states before its own Gap. One that was written before the Gap is of
// an agent that was being replaced.
func (s *podState) isCurrent(epoch string, after uint64) bool {
	return s.Epoch == epoch || s.After > after
}

// agentState is the value of a node in [AgentBucket].
type agentState struct {
	// Agent names the process that publishes.
	Agent string `json:"agent"`
	// Epoch and Seq are of the last event that the server has acknowledged.
	Epoch string `json:"epoch"`
	Seq   uint64 `json:"seq"`
	// CurrentAsOf is the time before the last list whose changes are all published.
	CurrentAsOf time.Time `json:"currentAsOf,omitzero"`
	// Verdict is what is wrong on the node; nil if the agent does not say.
	Verdict *Verdict `json:"verdict,omitempty"`
}

// apply adds an event. A pod whose containers are all removed has no state.
func (s *podState) apply(ev pleg.Event) {
	i := slices.IndexFunc(s.Events, func(last pleg.Event) bool { return last.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved:
		if i >= 0 {
			s.Events = slices.Delete(s.Events, i, i+1)
		}
		if ev.Type != pleg.ContainerRemoved {
			last := ev
			last.Replayed = false
			s.Events = append(s.Events, last)
		}
	case pleg.ContainerCorrected:
		if i >= 0 && s.Events[i].Type == pleg.ContainerDied {
			s.Events[i].ExitCode, s.Events[i].Reason, s.Events[i].FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
		}
	}
	s.Epoch, s.Seq = ev.Epoch, ev.Seq
	s.UID, s.Name, s.Namespace = ev.PodUID, ev.PodName, ev.PodNamespace
}

// setStatus adds the result of the last inspection.
func (s *podState) setStatus(status *pleg.PodStatus, err error) error {
	s.Error, s.Status = "", nil
	if err != nil {
		s.Error = err.Error()
	}
	if status == nil {
		return nil
	}
	if labels := labelsOf(status); labels != nil {
		s.Labels = labels
	}
	m := wire.FromStatus(status)
	for _, c := range m.GetContainers() {
		c.Annotations, c.Labels = nil, nil
	}
	for _, sandbox := range m.GetSandboxes() {
		sandbox.Annotations = nil
	}
	s.Status, err = protojson.Marshal(m)
	return err
}

// labelsOf returns the labels of the newest sandbox.
func labelsOf(status *pleg.PodStatus) map[string]string {
	if len(status.Sandboxes) == 0 {
		return nil
	}
	return slices.MaxFunc(status.Sandboxes, func(a, b *pleg.SandboxStatus) int { return cmp.Compare(a.Attempt, b.Attempt) }).Labels
}

// status returns the status in a state; nil if there is none.
func (s *podState) status() (*pleg.PodStatus, error) {
	if len(s.Status) == 0 {
		return nil, nil
	}
	m := &plegv1.PodStatus{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(s.Status, m); err != nil {
		return nil, err
	}
	return wire.ToStatus(m), nil
}
