package fleet

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMessageKeepsEvents(t *testing.T) {
	code := int32(137)
	at := time.Date(2026, 8, 1, 12, 0, 0, 5e6, time.UTC)
	want := []eventData{
		{Event: pleg.Event{Seq: 7, Epoch: "e", Type: pleg.ContainerDied, PodUID: "u", PodName: "web", PodNamespace: "shop", ContainerID: "c", ContainerName: "app", Attempt: 2, ExitCode: &code, Reason: "OOMKilled", ObservedAt: at}, Labels: map[string]string{"app": "web"}},
		{Event: pleg.Event{Seq: 8, Epoch: "e", Type: pleg.PodSync, PodUID: "u", ObservedAt: at}},
	}
	var parts []string
	for _, d := range want {
		one, err := encodeEvent(ceSource("prod", "n1"), d)
		kit.Must(t, err)
		parts = append(parts, string(one))
	}
	m, err := decode([]byte("[" + strings.Join(parts, ",") + "]"))
	kit.Must(t, err)
	if !reflect.DeepEqual(m.events, want) || m.epoch != "e" || m.first != 7 || m.last != 8 || m.gap {
		t.Errorf("got %+v, want %+v", m, want)
	}
	const golden = `{"specversion":"1.0","id":"e/8","source":"/clusters/prod/nodes/n1","type":"io.github.pleg-pipeline.pod.sync.v1",` +
		`"subject":"u","time":"2026-08-01T12:00:00.005Z","datacontenttype":"application/json","sequence":"00000000000000000008",` +
		`"data":{"seq":8,"type":"PodSync","podUID":"u","attempt":0,"sandbox":false,"epoch":"e","observedAt":"2026-08-01T12:00:00.005Z"}}`
	if parts[1] != golden {
		t.Errorf("got  %s\nwant %s", parts[1], golden)
	}
}

func TestBadMessages(t *testing.T) {
	for _, body := range []string{
		``, `{}`, `[]`, `[{"data":7}]`,
		`[{"data":{"seq":1,"epoch":"a"}},{"data":{"seq":2,"epoch":"b"}}]`,
		`[{"data":{"seq":1,"epoch":"a"}},{"data":{"seq":3,"epoch":"a"}}]`,
	} {
		if m, err := decode([]byte(body)); err == nil {
			t.Errorf("%s is read as %+v, want an error", body, m)
		}
	}
	if _, err := encodeEvent("", eventData{Event: pleg.Event{Type: pleg.Bookmark}}); err == nil {
		t.Error("a bookmark can be published")
	}
}
