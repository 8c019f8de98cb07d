package eventtype_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Names, verbs and severities are in logs, in alerts and on pages. The last type is of a newer version.
func TestDescriptions(t *testing.T) {
	want := map[string]eventtype.Class{
		`ContainerStarted 1 container.started "started" good`:                               eventtype.ClassNormal,
		`ContainerDied 2 container.died "died" notice`:                                      eventtype.ClassNormal,
		`ContainerRemoved 3 container.removed "was removed" routine`:                        eventtype.ClassNormal,
		`PodSync 4 pod.sync "was inspected again" notice`:                                   eventtype.ClassNormal,
		`NetworkSetupCompleted 5 network.setup_completed "has an address" good`:             eventtype.ClassOnRequest,
		`NetworkFailed 6 network.failed "never had an address" bad`:                         eventtype.ClassOnRequest,
		`ContainerCreated 7 container.created "was created" routine`:                        eventtype.ClassOnRequest,
		`ContainerCorrected 8 container.corrected "ended differently than reported" notice`: eventtype.ClassOnRequest,
		`Synced 16 synced "" routine`:                                                       eventtype.ClassMark,
		`Gap 17 gap "" bad`:                                                                 eventtype.ClassMark,
		`Bookmark 18 bookmark "" routine`:                                                   eventtype.ClassMark,
		`PodMoved 0 podmoved "PodMoved" notice`:                                             eventtype.ClassNormal,
	}
	got := make(map[string]eventtype.Class)
	for _, typ := range append(eventtype.Types(), "PodMoved") {
		of := eventtype.Of(typ)
		got[fmt.Sprintf("%s %d %s %q %s", of.Type, of.Number, of.Name, of.Verb, of.Severity)] = of.Class
	}
	for line, class := range want {
		if is, ok := got[line]; !ok || is != class {
			t.Errorf("no type is described as %s of class %d", line, class)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d types are described, want %d", len(got), len(want))
	}
	if types := eventtype.Types(eventtype.ClassMark, eventtype.ClassNormal); !slices.Equal(types, []pleg.EventType{
		pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved, pleg.PodSync, pleg.Synced, pleg.Gap, pleg.Bookmark,
	}) {
		t.Errorf("the types of two classes are %v", types)
	}
	var severities []string
	for _, code := range []*int32{nil, new(int32(0)), new(int32(1)), new(int32(-1))} {
		for _, typ := range []pleg.EventType{pleg.ContainerDied, pleg.ContainerCorrected, pleg.ContainerStarted} {
			severities = append(severities, eventtype.SeverityOf(&pleg.Event{Type: typ, ExitCode: code}).String())
		}
	}
	if got := strings.Join(severities, " "); got != "notice notice good notice notice good bad notice good bad notice good" {
		t.Errorf("the severities of ends, corrections and starts are %s", got)
	}
}
