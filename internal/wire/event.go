// Package wire converts events and statuses to their protobuf messages and back, for
// the server and the client of the gRPC service.
package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var eventTypes = func() map[plegv1.EventType]pleg.EventType {
	types := make(map[plegv1.EventType]pleg.EventType)
	for _, t := range eventtype.Types() {
		types[plegv1.EventType(eventtype.Of(t).Number)] = t
	}
	return types
}()

// FromEventType returns the number of a type; ok is false if there is none.
func FromEventType(t pleg.EventType) (number plegv1.EventType, ok bool) {
	number = plegv1.EventType(eventtype.Of(t).Number)
	return number, number != plegv1.EventType_EVENT_TYPE_UNSPECIFIED
}

// ToEventType returns the type of a number. The type of an unknown number is its digits, so that
// messages can name it.
func ToEventType(number plegv1.EventType) pleg.EventType {
	if t, ok := eventTypes[number]; ok {
		return t
	}
	return pleg.EventType(number.String())
}

// FromPosition returns the message of a position.
func FromPosition(p pleg.Position) *plegv1.Position {
	return &plegv1.Position{Epoch: p.Epoch, Seq: p.Seq}
}

// FromEvent returns the message of an event.
func FromEvent(ev pleg.Event) *plegv1.Event {
	number, _ := FromEventType(ev.Type)
	return &plegv1.Event{
		Seq:           ev.Seq,
		Epoch:         Text(ev.Epoch),
		Type:          number,
		PodUid:        Text(string(ev.PodUID)),
		PodName:       Text(ev.PodName),
		PodNamespace:  Text(ev.PodNamespace),
		ContainerId:   Text(string(ev.ContainerID)),
		ContainerName: Text(ev.ContainerName),
		Attempt:       ev.Attempt,
		Sandbox:       ev.Sandbox,
		ExitCode:      ev.ExitCode,
		Reason:        Text(ev.Reason),
		Image:         Text(ev.Image),
		StartedAt:     FromTime(ev.StartedAt),
		FinishedAt:    FromTime(ev.FinishedAt),
		Missed:        ev.Missed,
		Replayed:      ev.Replayed,
		ObservedAt:    FromTime(ev.ObservedAt),
		Status:        FromStatus(ev.Status),
	}
}

// ToEvent returns the event of a message, which may be nil.
func ToEvent(m *plegv1.Event) pleg.Event {
	if m == nil {
		m = &plegv1.Event{}
	}
	return pleg.Event{
		Seq:           m.GetSeq(),
		Epoch:         m.GetEpoch(),
		Type:          ToEventType(m.GetType()),
		PodUID:        pleg.PodUID(m.GetPodUid()),
		PodName:       m.GetPodName(),
		PodNamespace:  m.GetPodNamespace(),
		ContainerID:   pleg.ContainerID(m.GetContainerId()),
		ContainerName: m.GetContainerName(),
		Attempt:       m.GetAttempt(),
		Sandbox:       m.GetSandbox(),
		ExitCode:      m.ExitCode,
		Reason:        m.GetReason(),
		Image:         m.GetImage(),
		StartedAt:     ToTime(m.GetStartedAt()),
		FinishedAt:    ToTime(m.GetFinishedAt()),
		Missed:        m.GetMissed(),
		Replayed:      m.GetReplayed(),
		ObservedAt:    ToTime(m.GetObservedAt()),
		Status:        ToStatus(m.GetStatus()),
	}
}

// FromTime returns a timestamp, or nil for the zero time.
func FromTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ToTime returns a timestamp as local time. It returns the zero time for nil, and for a
// year that JSON cannot express.
func ToTime(t *timestamppb.Timestamp) time.Time {
	local := t.AsTime().Local()
	if t == nil || !t.IsValid() || local.Year() < 1 || local.Year() > 9999 {
		return time.Time{}
	}
	return local
}
