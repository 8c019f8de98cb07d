// Package eventtype describes the types of events for all outputs of the project.
package eventtype

import (
	"slices"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Class says which subscribers get the events of a type.
type Class uint8

const (
	// ClassNormal marks events that every subscriber gets, unless it filters them out.
	ClassNormal Class = iota
	// ClassOnRequest marks events that a subscriber gets only if it asks for them.
	ClassOnRequest
	// ClassMark marks events about the subscription. No filter applies to them.
	ClassMark
)

// Severity says how much attention an event deserves.
type Severity uint8

const (
	// SeverityRoutine marks events that need no attention.
	SeverityRoutine Severity = iota
	// SeverityGood marks events that show that something works.
	SeverityGood
	// SeverityNotice marks events that are worth a look.
	SeverityNotice
	// SeverityBad marks events that show that something failed or is missing.
	SeverityBad
)

// String returns the severity in lower case.
func (s Severity) String() string {
	return [...]string{SeverityRoutine: "routine", SeverityGood: "good", SeverityNotice: "notice", SeverityBad: "bad"}[s]
}

// Info describes a type of events in all outputs of the project.
type Info struct {
	Type pleg.EventType
	// Number is the number in pleg.v1.EventType; 0 for a type that this version does not know.
	Number int32
	// Name is the end of the names in OpenTelemetry logs and CloudEvents.
	Name string
	// Verb continues a sentence that begins with the container or the pod.
	Verb  string
	Class Class
	// Severity is that of most events of the type; see also [SeverityOf].
	Severity Severity
}

// all is every type that subscribers may get.
var all = []Info{
	{pleg.ContainerStarted, 1, "container.started", "started", ClassNormal, SeverityGood},
	{pleg.ContainerDied, 2, "container.died", "died", ClassNormal, SeverityNotice},
	{pleg.ContainerRemoved, 3, "container.removed", "was removed", ClassNormal, SeverityRoutine},
	{pleg.PodSync, 4, "pod.sync", "was inspected again", ClassNormal, SeverityNotice},
	{pleg.NetworkSetupCompleted, 5, "network.setup_completed", "has an address", ClassOnRequest, SeverityGood},
	{pleg.NetworkFailed, 6, "network.failed", "never had an address", ClassOnRequest, SeverityBad},
	{pleg.ContainerCreated, 7, "container.created", "was created", ClassOnRequest, SeverityRoutine},
	{pleg.ContainerCorrected, 8, "container.corrected", "ended differently than reported", ClassOnRequest, SeverityNotice},
	{pleg.Synced, 16, "synced", "", ClassMark, SeverityRoutine},
	{pleg.Gap, 17, "gap", "", ClassMark, SeverityBad},
	{pleg.Bookmark, 18, "bookmark", "", ClassMark, SeverityRoutine},
}

// Types returns the types of these classes, or all if there are none, in the order of
// their numbers.
func Types(classes ...Class) []pleg.EventType {
	var types []pleg.EventType
	for _, info := range all {
		if len(classes) == 0 || slices.Contains(classes, info.Class) {
			types = append(types, info.Type)
		}
	}
	return types
}

// Of returns the description of a type. For a type that this version does not know, everything
// follows from its text.
func Of(t pleg.EventType) Info {
	for i := range all {
		if all[i].Type == t {
			return all[i]
		}
	}
	return Info{Type: t, Name: strings.ToLower(string(t)), Verb: string(t), Severity: SeverityNotice}
}

// SeverityOf returns how much an event stands out. A container that died is bad if its exit
// code is known and not 0.
func SeverityOf(e *pleg.Event) Severity {
	if e.Type == pleg.ContainerDied && e.ExitCode != nil && *e.ExitCode != 0 {
		return SeverityBad
	}
	return Of(e.Type).Severity
}
