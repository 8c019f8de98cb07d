package otlp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func line(r log.Record) string {
	b := fmt.Sprintf("%s %s %q", r.SeverityText(), r.EventName(), r.Body().AsString())
	r.WalkAttributes(func(a attribute.KeyValue) bool {
		b += fmt.Sprintf(" %s=%v", a.Key, a.Value.AsInterface())
		return true
	})
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
	const container = pod + " container.id=c0ffee k8s.container.name=web"
	const attempt = " pleg.sandbox=false k8s.container.restart_count=2"
	for name, tc := range map[string]struct {
		event pleg.Event
		want  string
	}{
		"started": {
			of(func(ev *pleg.Event) { ev.Type = pleg.ContainerStarted }),
			`INFO pleg.container.started "Container web of pod shop/web-0 started"` + container + attempt,
		},
		"replayed": {
			of(func(ev *pleg.Event) { ev.Type, ev.Replayed = pleg.ContainerStarted, true }),
			`INFO pleg.container.started "Container web of pod shop/web-0 started (already known)"` + container + attempt + " pleg.replayed=true",
		},
		"killed": {
			of(func(ev *pleg.Event) { ev.Type, ev.ExitCode, ev.Reason = pleg.ContainerDied, &code, "OOMKilled" }),
			`WARN pleg.container.died "Container web of pod shop/web-0 died with exit code 137"` + container + " k8s.container.status.reason=OOMKilled" + attempt + " process.exit.code=137",
		},
		"completed": {
			of(func(ev *pleg.Event) { ev.Type, ev.ExitCode = pleg.ContainerDied, new(int32) }),
			`INFO pleg.container.died "Container web of pod shop/web-0 died with exit code 0"` + container + attempt + " process.exit.code=0",
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
			of(func(ev *pleg.Event) { ev.Type, ev.Sandbox, ev.ContainerName = pleg.NetworkFailed, true, "" }),
			`WARN pleg.network.failed "Sandbox of pod shop/web-0 never had an address"` + pod + " container.id=c0ffee pleg.sandbox=true pleg.sandbox.attempt=2",
		},
		"gap": {
			pleg.Event{Type: pleg.Gap, Epoch: "e1", Seq: 7, Reason: pleg.HistoryTooShort, Missed: 1},
			`WARN pleg.gap "Events may be missing" log.record.uid=e1:7:gap pleg.epoch=e1 pleg.seq=7 pleg.reason=HistoryTooShort pleg.missed=1`,
		},
		"first gap": {
			pleg.Event{Type: pleg.Gap, Epoch: "e1", Reason: pleg.OtherEpoch},
			`WARN pleg.gap "Events may be missing" log.record.uid=e1:0:gap pleg.epoch=e1 pleg.seq=0 pleg.reason=OtherEpoch`,
		},
		"synced": {
			pleg.Event{Type: pleg.Synced, Epoch: "e1", Seq: 7},
			`INFO pleg.synced "The present state of all pods is complete" log.record.uid=e1:7:synced pleg.epoch=e1 pleg.seq=7`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.event.ObservedAt = time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
			r := otlp.NewRecord(&tc.event)
			if got := line(r); got != tc.want || !r.Timestamp().Equal(tc.event.ObservedAt) || !r.ObservedTimestamp().Equal(tc.event.ObservedAt) {
				t.Errorf("at %v and %v, got\n%s, want at %v\n%s", r.Timestamp(), r.ObservedTimestamp(), got, tc.event.ObservedAt, tc.want)
			}
		})
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
				r := line(otlp.NewRecord(&ev))
				if len(r)*otlp.MaxBatch > 4<<20 || name == "long" && !strings.Contains(r, " pleg.epoch="+strings.Repeat("x", 512)+" ") || !utf8.ValidString(r) {
					t.Errorf("a record of %d bytes, valid %t", len(r), utf8.ValidString(r))
				}
			}
		})
	}
}

// docs/otlp.md lists every attribute. The events bear the names of the table in
// docs/subscriptions.md.
func TestAttributesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/otlp.md")
	kit.Must(t, err)
	code := int32(1)
	for _, kind := range eventtype.Types() {
		for _, sandbox := range []bool{true, false} {
			r := otlp.NewRecord(&pleg.Event{
				Type: kind, Epoch: "e", PodUID: "u", PodName: "p", PodNamespace: "n", ContainerID: "c", ContainerName: "c", Sandbox: sandbox,
				ExitCode: &code, Reason: "r", Missed: 1, Replayed: true,
			})
			r.WalkAttributes(func(a attribute.KeyValue) bool {
				if !strings.Contains(string(page), "| `"+string(a.Key)+"` |") {
					t.Errorf("docs/otlp.md lacks the attribute %s", a.Key)
				}
				return true
			})
		}
	}
}
