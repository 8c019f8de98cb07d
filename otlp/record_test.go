package otlp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/logrecords"
)

func recordsOf(events ...pleg.Event) (records []*logsv1.LogRecord) {
	for i := range events {
		records = append(records, otlp.NewRecord(&events[i]))
	}
	return records
}

func line(r *logsv1.LogRecord) string {
	b := fmt.Sprintf("%s %s %q", r.GetSeverityText(), r.GetEventName(), r.GetBody().GetStringValue())
	for _, a := range r.GetAttributes() {
		b += fmt.Sprintf(" %s=%v", a.GetKey(), logrecords.Plain(a.GetValue()))
	}
	return b
}

func TestRecordOfEachEvent(t *testing.T) {
	of := func(change func(*pleg.Event)) pleg.Event {
		ev := pleg.Event{
			Epoch: "e1", Seq: 7, PodUID: "u", PodName: "web-0", PodNamespace: "shop",
			ContainerID: "c0ffee", ContainerName: "web", Attempt: 2,
		}
		change(&ev)
		return ev
	}
	code := int32(137)
	const pod = " log.record.uid=e1:7 pleg.epoch=e1 pleg.seq=7 k8s.namespace.name=shop k8s.pod.name=web-0 k8s.pod.uid=u"
	const container = pod + " container.id=c0ffee pleg.sandbox=false k8s.container.name=web k8s.container.restart_count=2"
	for name, tc := range map[string]struct {
		event pleg.Event
		want  string
	}{
		"started": {
			of(func(ev *pleg.Event) { ev.Type = pleg.ContainerStarted }),
			`INFO pleg.container.started "Container web of pod shop/web-0 started"` + container,
		},
		"replayed": {
			of(func(ev *pleg.Event) { ev.Type, ev.Replayed = pleg.ContainerStarted, true }),
			`INFO pleg.container.started "Container web of pod shop/web-0 is running"` + container + " pleg.replayed=true",
		},
		"killed": {
			of(func(ev *pleg.Event) { ev.Type, ev.ExitCode, ev.Reason = pleg.ContainerDied, &code, "OOMKilled" }),
			`WARN pleg.container.died "Container web of pod shop/web-0 died with exit code 137 (OOMKilled)"` + container + " process.exit.code=137 k8s.container.status.reason=OOMKilled",
		},
		"died unnoticed": {
			of(func(ev *pleg.Event) { ev.Type, ev.Uninspected = pleg.ContainerDied, true }),
			`INFO pleg.container.died "Container web of pod shop/web-0 died"` + container + " pleg.uninspected=true",
		},
		"removed sandbox": {
			of(func(ev *pleg.Event) { ev.Type, ev.Sandbox, ev.ContainerName = pleg.ContainerRemoved, true, "web-0" }),
			`INFO pleg.container.removed "Sandbox of pod shop/web-0 was removed"` + pod + " container.id=c0ffee pleg.sandbox=true pleg.sandbox.attempt=2",
		},
		"inspected": {
			of(func(ev *pleg.Event) { ev.Type, ev.ContainerID, ev.ContainerName = pleg.PodSync, "", "" }),
			`INFO pleg.pod.sync "Pod shop/web-0 was inspected again"` + pod,
		},
		"network": {
			of(func(ev *pleg.Event) { ev.Type, ev.Sandbox = pleg.NetworkFailed, true }),
			`WARN pleg.network.failed "Sandbox of pod shop/web-0 never had an address"` + pod + " container.id=c0ffee pleg.sandbox=true pleg.sandbox.attempt=2",
		},
		"gap": {
			pleg.Event{Type: pleg.Gap, Epoch: "e1", Seq: 7, Reason: pleg.HistoryTooShort, Missed: 3},
			`WARN pleg.gap "3 events are missing; the present state of all pods follows" log.record.uid=e1:7:gap pleg.epoch=e1 pleg.seq=7 pleg.missed=3 pleg.reason=HistoryTooShort`,
		},
		"first gap": {
			pleg.Event{Type: pleg.Gap, Epoch: "e1", Reason: pleg.OtherEpoch},
			`WARN pleg.gap "Earlier events may be missing; the present state of all pods follows" log.record.uid=e1:0:gap pleg.epoch=e1 pleg.seq=0 pleg.reason=OtherEpoch`,
		},
		"last gap": {
			pleg.Event{Type: pleg.Gap, Epoch: "e1", Seq: 9, Reason: pleg.Stopped, Missed: 2},
			`WARN pleg.gap "The agent stopped before it could export 2 events" log.record.uid=e1:9:gap pleg.epoch=e1 pleg.seq=9 pleg.missed=2 pleg.reason=Stopped`,
		},
		"synced": {
			pleg.Event{Type: pleg.Synced, Epoch: "e1", Seq: 7},
			`INFO pleg.synced "The present state of all pods is complete" log.record.uid=e1:7:synced pleg.epoch=e1 pleg.seq=7`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := line(otlp.NewRecord(&tc.event)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestRecordHasTheTimeOfTheObservation(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	r := otlp.NewRecord(&pleg.Event{Type: pleg.PodSync, ObservedAt: at})
	if want := uint64(at.UnixNano()); r.GetTimeUnixNano() != want || r.GetObservedTimeUnixNano() != want {
		t.Errorf("times %d and %d, want %d", r.GetTimeUnixNano(), r.GetObservedTimeUnixNano(), want)
	}
	for _, at := range []time.Time{{}, time.Unix(-1, 0)} {
		if r := otlp.NewRecord(&pleg.Event{Type: pleg.PodSync, ObservedAt: at}); r.GetTimeUnixNano() != 0 {
			t.Errorf("time of %v is %d, want 0: unknown", at, r.GetTimeUnixNano())
		}
	}
}

// A runtime may say anything. One bad text must not make a request invalid or huge.
func TestHostileTexts(t *testing.T) {
	for name, s := range map[string]string{
		"no UTF-8":       "a\xff\xfeb",
		"long":           strings.Repeat("x", 1<<20),
		"long and wide":  strings.Repeat("é", 1<<20),
		"cut in a rune":  strings.Repeat("x", otlp.MaxText-1) + "é",
		"long, no UTF-8": strings.Repeat("\xff", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			code := int32(1)
			ev := pleg.Event{
				Type: pleg.ContainerDied, Epoch: s, PodUID: pleg.PodUID(s), PodName: s, PodNamespace: s,
				ContainerID: pleg.ContainerID(s), ContainerName: s, Reason: s, ExitCode: &code,
			}
			for _, kind := range []pleg.EventType{pleg.ContainerDied, pleg.Gap, pleg.EventType(s)} {
				ev.Type = kind
				r := otlp.NewRecord(&ev)
				wire, err := proto.Marshal(r)
				kit.Must(t, err)
				if len(wire) > 16*otlp.MaxText {
					t.Errorf("a record of %d bytes", len(wire))
				}
				if uid := attribute(r, "pleg.epoch").(string); !utf8.ValidString(uid) || len(uid) > otlp.MaxText {
					t.Errorf("epoch of %d bytes, valid %t", len(uid), utf8.ValidString(uid))
				}
			}
		})
	}
}

// docs/otlp.md has every attribute. The names of events are those of the table in package
// pleg, which docs/subscriptions.md has.
func TestAttributesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/otlp.md")
	kit.Must(t, err)
	code := int32(1)
	var events []pleg.Event
	for _, kind := range pleg.EventTypes() {
		for _, sandbox := range []bool{true, false} {
			events = append(events, pleg.Event{
				Type: kind, Epoch: "e", PodUID: "u", PodName: "p", PodNamespace: "n", ContainerID: "c", ContainerName: "c", Sandbox: sandbox,
				ExitCode: &code, Reason: "r", Missed: 1, Replayed: true, Uninspected: true,
			})
		}
	}
	for _, r := range recordsOf(events...) {
		for _, a := range r.GetAttributes() {
			if !strings.Contains(string(page), "| `"+a.GetKey()+"` |") {
				t.Errorf("docs/otlp.md lacks the attribute %s", a.GetKey())
			}
		}
	}
}
