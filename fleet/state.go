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
}

// podState is the value of a pod in [StateBucket].
type podState struct {
	Epoch string `json:"epoch"`
	// Seq is the number of the last event of the pod that the state includes.
	Seq       uint64            `json:"seq"`
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

// podRecord is what the publisher knows of one pod.
type podRecord struct {
	podState

	last map[pleg.ContainerID]pleg.Event
}

// apply adds an event. A pod whose containers are all removed has no state.
func (r *podRecord) apply(ev pleg.Event) {
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied:
		ev.Replayed = false
		r.last[ev.ContainerID] = ev
	case pleg.ContainerRemoved:
		delete(r.last, ev.ContainerID)
	}
	r.Epoch, r.Seq = ev.Epoch, ev.Seq
	r.UID, r.Name, r.Namespace = ev.PodUID, ev.PodName, ev.PodNamespace
}

// setStatus adds the result of the last inspection.
func (r *podRecord) setStatus(status *pleg.PodStatus, err error) error {
	r.Error, r.Status = "", nil
	if err != nil {
		r.Error = err.Error()
	}
	if status == nil {
		return nil
	}
	if labels := labelsOf(status); labels != nil {
		r.Labels = labels
	}
	m := wire.FromStatus(status)
	for _, c := range m.GetContainers() {
		c.Annotations, c.Labels = nil, nil
	}
	for _, s := range m.GetSandboxes() {
		s.Annotations = nil
	}
	var marshalError error
	r.Status, marshalError = protojson.Marshal(m)
	return marshalError
}

// labelsOf returns the labels of the newest sandbox.
func labelsOf(status *pleg.PodStatus) map[string]string {
	if len(status.Sandboxes) == 0 {
		return nil
	}
	return slices.MaxFunc(status.Sandboxes, func(a, b *pleg.SandboxStatus) int { return cmp.Compare(a.Attempt, b.Attempt) }).Labels
}

func bySeq(a, b pleg.Event) int { return cmp.Compare(a.Seq, b.Seq) }

func newRecord(s podState) *podRecord {
	r := &podRecord{podState: s, last: make(map[pleg.ContainerID]pleg.Event, len(s.Events))}
	for _, ev := range s.Events {
		r.last[ev.ContainerID] = ev
	}
	return r
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

// record returns the record of the pod of ev.
func (s *session) record(ev pleg.Event) *podRecord {
	r, ok := s.pods[ev.PodUID]
	if !ok {
		r = newRecord(podState{})
		s.pods[ev.PodUID] = r
	}
	return r
}
