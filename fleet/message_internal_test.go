package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A message contains the whole event, and the whole pod as it is after the event.
func TestMessageKeepsEventAndPod(t *testing.T) {
	at := time.Date(2026, 8, 1, 12, 0, 0, 5e6, time.UTC)
	base := pleg.Event{Epoch: "e", Type: pleg.ContainerStarted, PodUID: "u", PodName: "web", PodNamespace: "shop", StartedAt: at.Add(-time.Minute), ObservedAt: at}
	event := func(seq uint64, kind pleg.EventType, id pleg.ContainerID) pleg.Event {
		ev := base
		ev.Seq, ev.Type, ev.ContainerID = seq, kind, id
		return ev
	}
	died := event(3, pleg.ContainerDied, "c")
	died.ExitCode, died.Reason, died.FinishedAt = new(int32(137)), "Error", at
	s := &record{}
	for _, ev := range []pleg.Event{event(1, pleg.ContainerStarted, "c"), event(2, pleg.ContainerStarted, "s"), died} {
		s.apply(&ev)
	}
	for _, id := range []pleg.ContainerID{"s", "other"} { // neither has ended
		s.apply(&pleg.Event{Type: pleg.ContainerCorrected, ContainerID: id, Reason: "Error"})
	}
	corrected := died
	corrected.Seq, corrected.Type, corrected.ExitCode, corrected.Reason, corrected.FinishedAt = 4, pleg.ContainerCorrected, new(int32(9)), "OOMKilled", at.Add(time.Second)
	s.apply(&corrected)
	status := &pleg.PodStatus{
		UID: "u", Name: "web", Namespace: "shop", IPs: []string{"10.0.0.1"}, ObservedAt: at,
		Containers: []*pleg.ContainerStatus{{
			ID: "c", Name: "app", Attempt: 3, State: pleg.StateExited, CreatedAt: at, StartedAt: at.Add(1), FinishedAt: at.Add(2), ExitCode: 137,
			Reason: "Error", Message: "out of it", Image: "web:1", ImageRef: "sha256:1", LogPath: "/log",
		}},
		Sandboxes: []*pleg.SandboxStatus{
			{ID: "s", Attempt: 1, Ready: true, CreatedAt: at, IPs: []string{"10.0.0.2", "10.0.0.3"}, Labels: map[string]string{"app": "web"}},
			{ID: "older", HostNetwork: true},
		},
	}
	s.setStatus(status)
	if _, cut := s.encode(newMessage("", ofState, &base), 100); cut == "" { // it leaves the record as it is
		t.Error("a hundred bytes are enough for a pod")
	}
	ce := newMessage(ceSource("prod", "n1"), ofEvent, &corrected)
	body, cut := s.encode(ce, 1<<20)
	if cut != "" {
		t.Fatal(cut)
	}
	const want = `{"specversion":"1.0","id":"e/4","source":"/clusters/prod/nodes/n1","type":"io.github.pleg-pipeline.container.corrected.v1",` +
		`"subject":"u","time":"2026-08-01T12:00:00.005Z","datacontenttype":"application/json","sequence":"00000000000000000004","data":{"seq":4,` +
		`"type":"ContainerCorrected","podUID":"u","podName":"web","podNamespace":"shop","containerID":"c","attempt":0,"sandbox":false,"exitCode":9,` +
		`"reason":"OOMKilled","epoch":"e","startedAt":"2026-08-01T11:59:00.005Z","finishedAt":"2026-08-01T12:00:01.005Z","observedAt":"2026-08-01T12:00:00.005Z",` +
		`"pod":{"labels":{"app":"web"},"gone":false,"events":[{"seq":2,"type":"ContainerStarted","containerID":"s","attempt":0,"sandbox":false,"epoch":"e",` +
		`"startedAt":"2026-08-01T11:59:00.005Z","observedAt":"2026-08-01T12:00:00.005Z"},{"seq":3,"type":"ContainerDied","containerID":"c","attempt":0,` +
		`"sandbox":false,"exitCode":9,"reason":"OOMKilled","epoch":"e","startedAt":"2026-08-01T11:59:00.005Z","finishedAt":"2026-08-01T12:00:01.005Z",` +
		`"observedAt":"2026-08-01T12:00:00.005Z"}],"status":{"ips":["10.0.0.1"],"containers":[{"id":"c","name":"app","attempt":3,"state":3,` +
		`"createdAt":"2026-08-01T12:00:00.005Z","startedAt":"2026-08-01T12:00:00.005000001Z","finishedAt":"2026-08-01T12:00:00.005000002Z","exitCode":137,` +
		`"reason":"Error","message":"out of it","image":"web:1","imageRef":"sha256:1","logPath":"/log"}],"sandboxes":[{"id":"s","attempt":1,"ready":true,` +
		`"createdAt":"2026-08-01T12:00:00.005Z","ips":["10.0.0.2","10.0.0.3"]},{"id":"older","ready":false,"hostNetwork":true}],` +
		`"observedAt":"2026-08-01T12:00:00.005Z"}}}}`
	if string(body) != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	m, err := decode(body)
	kit.Must(t, err)
	died.ExitCode, died.Reason, died.FinishedAt = corrected.ExitCode, corrected.Reason, corrected.FinishedAt
	if want := []pleg.Event{event(2, pleg.ContainerStarted, "s"), died}; m.kind != ofEvent || !reflect.DeepEqual(m.Event, corrected) || !reflect.DeepEqual(m.Pod.Events, want) {
		t.Errorf("got %+v with %+v, want %+v with %+v", m.Event, m.Pod.Events, corrected, want)
	}
	one := new(record)
	for _, ev := range []pleg.Event{event(2, pleg.ContainerDied, "c"), corrected} {
		one.apply(&ev)
	}
	if ends := one.Events; len(ends) != 1 || ends[0].Reason != "OOMKilled" || ends[0].Seq != 2 {
		t.Errorf("the only container has %+v", ends)
	}
	if got, err := m.statuses(); err != nil || !reflect.DeepEqual(got.Status, status) || !reflect.DeepEqual(got.Labels, status.Sandboxes[0].Labels) {
		t.Errorf("got %+v, want %+v", got, status)
	}
	if s.setStatus(&pleg.PodStatus{Sandboxes: []*pleg.SandboxStatus{{ID: "s"}}}); s.Labels["app"] != "web" {
		t.Errorf("a status without labels leaves %v", s.Labels)
	}
	if s.setStatus(&pleg.PodStatus{Sandboxes: []*pleg.SandboxStatus{
		{ID: "s2", Attempt: 2, Labels: map[string]string{"app": "old"}}, {ID: "s4", Attempt: 4, Labels: map[string]string{"app": "shop"}}, {ID: "s3", Attempt: 3},
	}}); s.Labels["app"] != "shop" {
		t.Errorf("a new sandbox leaves the labels %v", s.Labels)
	}
	for _, id := range []pleg.ContainerID{"c", "s"} {
		if s.apply(new(event(5, pleg.ContainerRemoved, id))); s.Gone != (id == "s") {
			t.Errorf("without %s the pod is gone: %v", id, s.Gone)
		}
	}
	if empty := string(encodeStatus(new(pleg.PodStatus))); empty != `{"containers":[],"sandboxes":[]}` {
		t.Errorf("a status without containers is %s", empty)
	}
	ce = newMessage("", ofState, &base)
	body, _ = s.encode(ce, 1<<20)
	if m, err := decode(body); err != nil || m.kind != ofState || !m.Pod.Gone {
		t.Errorf("got %+v, %v, want a pod that is gone", m, err)
	}
}

// A message that is too large loses labels first, then the status, then the events, and says so.
func TestWhatIsLeftOut(t *testing.T) {
	var r record
	r.apply(&pleg.Event{Type: pleg.ContainerStarted, ContainerID: "c"})
	r.setStatus(&pleg.PodStatus{
		Containers: []*pleg.ContainerStatus{{Message: strings.Repeat("m", 2000)}}, Sandboxes: []*pleg.SandboxStatus{{Labels: map[string]string{"l": strings.Repeat("l", 4000)}}},
	})
	whole, _ := r.encode(newMessage("", ofState, &pleg.Event{Epoch: "e"}), 8000)
	says := fmt.Sprintf("the state is too large to publish whole: %d bytes", len(whole))
	if _, cut := r.encode(newMessage("", ofState, &pleg.Event{Epoch: "e"}), len(whole)-1); cut != says {
		t.Errorf("with a byte less it says %q, want %q", cut, says)
	}
	for limit, want := range map[int]string{len(whole): "labels status events", 4000: "status events", 1500: "events", 10: ""} {
		body, cut := r.encode(newMessage("", ofState, &pleg.Event{Epoch: "e"}), limit)
		m, err := decode(body)
		kit.Must(t, err)
		pod, err := m.statuses()
		kit.Must(t, err)
		var left []string
		for part, there := range map[string]bool{"labels": len(pod.Labels) > 0, "status": pod.Status != nil, "events": len(m.Pod.Events) > 0} {
			if there {
				left = append(left, part)
			}
		}
		wanted := strings.Fields(want)
		if slices.Sort(left); !slices.Equal(left, slices.Sorted(slices.Values(wanted))) || (cut == "") != (len(wanted) == 3) || m.Pod.Error != cut {
			t.Errorf("of a pod in %d bytes %q is left, and it says %q, %q; want %q", limit, left, m.Pod.Error, cut, wanted)
		}
	}
}

// A text is at most so long, and two that begin alike stay distinct.
func TestFit(t *testing.T) {
	texts := func(ev *pleg.Event) []*string {
		return []*string{(*string)(&ev.PodUID), &ev.PodName, &ev.PodNamespace, (*string)(&ev.ContainerID), &ev.ContainerName, &ev.Reason, &ev.Image}
	}
	whole := strings.Repeat("é", maxText/2)
	for i := range texts(new(pleg.Event)) {
		var fits, a, b pleg.Event
		*texts(&fits)[i], *texts(&a)[i], *texts(&b)[i] = whole, "x"+whole+"a", "x"+whole+"b"
		if fit(&fits) || *texts(&fits)[i] != whole {
			t.Errorf("text %d is cut to %d bytes", i, len(*texts(&fits)[i]))
		}
		if !fit(&a) || !fit(&b) {
			t.Errorf("text %d is not cut", i)
		}
		for text, end := range map[string]string{*texts(&a)[i]: "a", *texts(&b)[i]: "b"} {
			if want := "x" + strings.Repeat("é", maxText/2-1) + "~" + hash("x"+whole+end); text != want {
				t.Errorf("text %d is cut to %s, want %s", i, text, want)
			}
		}
	}
}

// Two messages of a node have two ids.
func TestIDs(t *testing.T) {
	ev := pleg.Event{Epoch: "e", Seq: 1, PodUID: "u", ObservedAt: time.Unix(1000, 0)}
	next, restarted, other, later := ev, ev, ev, ev
	next.Seq, restarted.Epoch, other.PodUID, later.ObservedAt = 2, "f", "v", ev.ObservedAt.Add(1)
	seen := make(map[string]bool)
	for _, m := range []*cloudEvent{
		newMessage("", ofEvent, &ev), newMessage("", ofEvent, &next), newMessage("", ofEvent, &restarted), newMessage("", ofState, &ev),
		newMessage("", ofState, &other), newMessage("", ofState, &later), newMessage("", ofGap, &ev), newMessage("", ofSynced, &ev),
	} {
		if seen[m.ID] {
			t.Errorf("%s of %s has the id of another message: %s", m.Type, m.Subject, m.ID)
		}
		seen[m.ID] = true
	}
	ev.Seq = 475
	if state, event := newMessage("", ofState, &ev).ID, newMessage("", ofEvent, &ev).ID; state != "e/475/pod.state/u/e8d4a51000" || event != "e/475" {
		t.Errorf("the id of a state is %s, of an event %s", state, event)
	}
	for k, name := range map[kind]string{ofState: "pod.state", ofGap: "node.gap", ofSynced: "node.synced", ofAgent: "node.agent", ofGone: "node.gone"} {
		if got := newMessage("", k, &ev).Type; got != "io.github.pleg-pipeline."+name+".v1" {
			t.Errorf("the type of %s is %s", k, got)
		}
	}
	if name := newMessage("", ofEvent, &pleg.Event{Type: pleg.NetworkSetupCompleted}).Type; name != "io.github.pleg-pipeline.network.setupcompleted.v1" {
		t.Errorf("the type is %s", name)
	}
}

func TestBadMessages(t *testing.T) {
	objects := func(n int) string {
		return `{"data":{"epoch":"e","pod":{"events":[` + strings.Repeat("{},", n-4) + `{}]}}}`
	}
	for body, want := range map[string]string{
		``: "", `{}`: "it has no epoch", `[]`: "", `{"data":7}`: "", `{"data":{"epoch":"e"}}`: "it has no pod", `{"data":{"pod":{}}}`: "it has no epoch",
		`{"type":"io.github.pleg-pipeline.pod.state.v1","data":{"epoch":"e"}}`: "it has no pod",
		`{"type":"io.github.pleg-pipeline.node.synced.v1","data":{}}`:          "it has no epoch",
		`{"data":{"epoch":"e","pod":{"gone":1}}}`:                              "",
		objects(5000): "<nil>", objects(5001): "it has 5001 objects: want at most 5000",
	} {
		if m, err := decode([]byte(body)); want == "" && err == nil || want != "" && fmt.Sprint(err) != want {
			t.Errorf("%.200s is read as %+v, %v, want %q", body, m.Event, err, cmp.Or(want, "an error"))
		}
	}
}

// The last event of a node is that of its newest event, state or Synced. Another daemon counts from the beginning.
func TestProgress(t *testing.T) {
	for k, noted := range map[kind]bool{ofEvent: true, ofState: true, ofSynced: true, ofGap: false, ofAgent: false, ofGone: false} {
		p := progress{epoch: "d", seq: 9}
		if p.note(&message{kind: k, data: data{Event: pleg.Event{Epoch: "e", Seq: 2}}}); (p == progress{epoch: "e", seq: 2}) != noted {
			t.Errorf("after a message of kind %s it is %+v", k, p)
		}
	}
}

// The memory that a message costs a reader is bounded, whatever the message contains.
func TestLargeMessages(t *testing.T) {
	const size = 750_000
	for name, of := range map[string]string{"objects": "{},", "nulls": "null,", "events": `{"type":"ContainerStarted"},`} {
		events := strings.Repeat(of, size/len(of))
		body := []byte(`{"data":{"epoch":"e","pod":{"events":[` + events[:len(events)-1] + `]}}}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode(body)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > size {
			t.Errorf("%s: %v, and reading takes %d bytes, want an error and at most %d", name, err, took, size)
		}
	}
}

// An agent that begins with the largest valid messages of its node needs little memory for each: sixty of them stay
// below the 256 MiB of the manifest.
func TestBeginWithLargeMessages(t *testing.T) {
	const size, messages, allowed = 750_000, 10, 40 << 20 // a sixth of 256 MiB, without the daemon's other memory
	fill := func(format string, most int) string {
		var text strings.Builder
		for n := 0; text.Len() < size-1000 && n < most; n++ {
			fmt.Fprintf(&text, format, n)
		}
		return strings.TrimSuffix(text.String(), ",")
	}
	for name, pod := range map[string]string{
		"labels": `"labels":{` + fill(`"%x":"",`, size) + `}`,
		"events": `"events":[` + fill(`{"type":"ContainerDied","containerID":"%0100x"},`, maxObjects-10) + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			bodies := make([][]byte, messages) // the connection holds them until they are read
			for n := range bodies {
				bodies[n] = fmt.Appendf(nil, `{"data":{"epoch":"e","podUID":"%d","podName":"web","podNamespace":"shop","pod":{%s}}}`, n, pod)
			}
			var before, after runtime.MemStats
			runtime.GC()
			debug.FreeOSMemory()
			runtime.ReadMemStats(&before)
			pods, most := make(map[string]*record), uint64(0)
			for _, body := range bodies {
				of, err := decode(body)
				if err != nil {
					t.Fatal(err)
				}
				pods[string(of.PodUID)] = newRecord(of.PodUID, of.PodName, of.PodNamespace)
				runtime.ReadMemStats(&after)
				most = max(most, after.HeapInuse)
			}
			took := messages*size + most - before.HeapInuse
			t.Logf("%d MiB", took>>20)
			if took > allowed || len(pods) != messages {
				t.Errorf("%d pods take %d MiB, want at most %d", len(pods), took>>20, allowed>>20)
			}
			runtime.KeepAlive(bodies)
		})
	}
}

// A full server is asked again after a minute, after other errors within seconds.
func TestIsFull(t *testing.T) {
	p, registry := newTestPublisher(t, new(memoryStream))
	tests := []struct {
		err  error
		want time.Duration
	}{
		{nats.ErrTimeout, 0},
		{&jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}, 0},
		{&jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}, time.Minute},
		{&jetstream.APIError{Code: 400, ErrorCode: 10002, Description: "resource limits exceeded for account"}, time.Minute},
		{&jetstream.APIError{Code: 400, ErrorCode: 10071, Description: "wrong last sequence: 42"}, 0},
		{&jetstream.APIError{Code: 500, ErrorCode: 10023, Description: "insufficient resources"}, time.Minute},
		{&jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}, time.Minute},
	}
	for _, tt := range tests {
		if got := p.loop.Count(fmt.Errorf("publish: %w", tt.err)); got != tt.want {
			t.Errorf("%v: waits for %v, want %v", tt.err, got, tt.want)
		}
	}
	kit.RequireMetric(t, registry, float64(len(tests)), "pleg_fleet_retries_total")
}

// What a refusal changes: the messages are made again, by the present limits, or the next one is tried alone.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		code         jetstream.ErrorCode
		first        kind
		again, alone bool
	}{
		"a message is too large":      {10054, ofEvent, true, false},
		"a batch is incomplete":       {10176, ofEvent, false, true},
		"a replay is incomplete":      {10176, ofGap, true, false},
		"the stream is full":          {10077, ofGap, false, true},
		"another agent has published": {10071, ofEvent, false, false},
	} {
		p, _ := newTestPublisher(t, new(memoryStream))
		p.queue = []outgoing{{kind: tt.first}}
		p.fails(p.failed(&jetstream.APIError{ErrorCode: tt.code}))
		if (p.pods == nil) != tt.again || p.alone != tt.alone {
			t.Errorf("%s: begins again: %v, sends alone: %v, want %+v", name, p.pods == nil, p.alone, tt)
		}
	}
}

// Three short attempts find another leader soon; later ones get longer, so that a busy server is
// not asked too often.
func TestPatience(t *testing.T) {
	for i, want := range []time.Duration{5, 5, 5, 10, 20, 40, 60, 60} {
		if got := (&patience{unanswered: i}).timeout(); got != want*time.Second {
			t.Errorf("after %d attempts without an answer, one request takes %v, want %d s", i, got, want)
		}
	}
	if got := thorough.timeout(); got != time.Minute {
		t.Errorf("a reader that does not try again waits for %v", got)
	}
	var p patience
	conn := connectTo(t, 100)
	for i, err := range []error{nil, nats.ErrTimeout, context.DeadlineExceeded, jetstream.ErrNoHeartbeat, errors.New("refused")} {
		p.note(conn, err)
		if p.note(new(nats.Conn), err); p.unanswered != min(i, 3) {
			t.Errorf("%d attempts had no answer, want %d", p.unanswered, min(i, 3))
		}
	}
}

// The messages that are sent together: a Gap begins a batch, a single server gets single messages in a row unless
// other nodes publish, and after a refusal the next event is tried alone.
func TestSize(t *testing.T) {
	for name, tt := range map[string]struct {
		queue    string // e is an event, g a Gap, s the other messages of a replay
		replicas int
		alone    bool
		crowded  int
		sent     int // messages of the queue that are in flight, not in a batch
		want     int
		batch    bool
	}{
		"events":                                {queue: "eee", replicas: 1, want: 3},
		"events of three servers":               {queue: "eee", replicas: 3, want: 3, batch: true},
		"events of two servers":                 {queue: "ee", replicas: 2, want: 2, batch: true},
		"one event of three servers":            {queue: "e", replicas: 3, want: 1},
		"few events while other nodes publish":  {queue: "eee", replicas: 1, crowded: 1, want: 1},
		"many events while other nodes publish": {queue: strings.Repeat("e", 20), replicas: 1, crowded: 1, want: 20, batch: true},
		"just enough for a batch":               {queue: strings.Repeat("e", 16), replicas: 1, crowded: 3, want: 16, batch: true},
		"too few for a batch":                   {queue: strings.Repeat("e", 15), replicas: 1, crowded: 2, want: 1},
		"more than fit":                         {queue: strings.Repeat("e", 2000), replicas: 1, want: 1000},
		"events after a refusal":                {queue: strings.Repeat("e", 20), replicas: 3, alone: true, want: 1},
		"a replay":                              {queue: "gss", replicas: 1, want: 3, batch: true},
		"a replay after a refusal":              {queue: "gss", replicas: 1, alone: true, want: 3, batch: true},
		"a replay behind events":                {queue: "eegss", replicas: 3, want: 2, batch: true},
		"a replay behind one event":             {queue: "egss", replicas: 3, want: 1},
		"a row behind a row":                    {queue: strings.Repeat("e", 200), replicas: 1, sent: 50, want: 150},
		"a row behind a row, before a replay":   {queue: strings.Repeat("e", 200) + "gs", replicas: 1, sent: 50, want: 150},
		"just enough behind a row":              {queue: strings.Repeat("e", 178), replicas: 1, sent: 50, want: 128},
		"few events behind a row":               {queue: strings.Repeat("e", 177), replicas: 1, sent: 50, want: 0},
		"a replay behind a row":                 {queue: "e" + "g" + strings.Repeat("s", 200), replicas: 1, sent: 1, want: 0},
		"a replay, and more behind it":          {queue: "gsseegss", replicas: 1, want: 5, batch: true},
	} {
		stream := &memoryStream{info: jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: tt.replicas}}}
		p := Publisher{session: session{store: stream.on(), outbox: outbox{alone: tt.alone, crowded: tt.crowded, sent: tt.sent}}}
		for _, k := range tt.queue {
			p.queue = append(p.queue, outgoing{kind: map[rune]kind{'e': ofEvent, 'g': ofGap, 's': ofState}[k]})
		}
		if p.row, p.parts = true, []part{{}}; tt.sent > 0 && !p.followable() {
			if tt.want > 0 {
				t.Errorf("%s: no row follows", name)
			}
			continue
		}
		if n, batch := p.size(); n != tt.want || batch != tt.batch || p.crowded != max(0, tt.crowded-1) {
			t.Errorf("%s: %d messages, as a batch: %t, want %+v", name, n, batch, tt)
		}
	}
}

// A message shows whether messages of its node are missing before it: it contains the number of the node's
// message before it.
func TestHole(t *testing.T) {
	known := progress{last: 20, epoch: "e", seq: 7}
	header := func(last string, batch string) nats.Header {
		return nats.Header{jetstream.ExpectedLastSubjSeqHeader: {last}, batchSequence: {batch}}
	}
	row := nats.Header{jetstream.MsgIDHeader: {"x.30"}, jetstream.ExpectedLastMsgIDHeader: {"x.29"}}
	for name, tt := range map[string]struct {
		p      progress
		start  uint64
		header nats.Header
		kind   kind
		gap    bool
		missed uint64
	}{
		"the next event":                   {p: known, header: header("20", ""), kind: ofEvent},
		"an event after one that was lost": {p: known, header: header("25", ""), kind: ofEvent, gap: true, missed: 1},
		"of an older number":               {p: progress{last: 20, epoch: "e", seq: 9}, header: header("25", ""), kind: ofEvent, gap: true},
		"of another epoch":                 {p: progress{last: 20, epoch: "d", seq: 7}, header: header("25", ""), kind: ofEvent, gap: true},
		"the same of a state":              {p: known, header: header("25", ""), kind: ofState, gap: true},
		"within a batch":                   {p: progress{last: 29}, header: header("", "2"), kind: ofEvent},
		"a hole in a batch":                {p: progress{last: 28}, header: header("", "3"), kind: ofEvent, gap: true},
		"the first of a batch":             {p: known, header: header("20", "1"), kind: ofEvent},
		"within a row":                     {p: progress{last: 29}, header: row, kind: ofEvent},
		"a hole in a row":                  {p: progress{last: 28}, header: row, kind: ofEvent, gap: true},
		"of a node that is not known":      {start: 25, header: header("25", ""), kind: ofEvent},
		"after one that was lost":          {start: 25, header: header("26", ""), kind: ofEvent, gap: true},
		"of somebody who names none":       {p: known, kind: ofEvent},
		"states that began earlier":        {p: known, header: header("20", ""), kind: ofSynced, gap: true},
		"states that are complete":         {p: progress{last: 20, replaying: true}, header: header("20", ""), kind: ofSynced},
	} {
		gap := tt.p.hole(&message{tt.kind, data{Event: pleg.Event{Epoch: "e", Seq: 9}}}, previous(&jetstream.RawStreamMsg{Sequence: 30, Header: tt.header}), tt.start)
		if (gap != nil) != tt.gap || gap != nil && (gap.Missed != tt.missed || gap.Reason != pleg.HistoryTooShort || gap.Epoch != "e" || gap.Seq != 9) {
			t.Errorf("%s: the Gap is %+v, want %+v", name, gap, tt)
		}
	}
}

// A message with a number that the node cannot have reached yet is from somebody else, and changes
// nothing.
func TestNumberBeyondTheLast(t *testing.T) {
	for name, tt := range map[string]struct {
		kind   kind
		epoch  string
		seq    uint64
		beyond bool
	}{
		"the next event":                   {ofEvent, "e", 8, false},
		"an event after it":                {ofEvent, "e", 9, true},
		"a state":                          {ofState, "e", 7, false},
		"a state of the future":            {ofState, "e", 8, true},
		"an event of another epoch":        {ofEvent, "f", 900, false},
		"a Gap of the agent's source":      {ofGap, "e", 900, false},
		"an agent that says that it lives": {ofAgent, "", 0, false},
	} {
		w, got := newTestWatch(t)
		var passed []string
		w.nodes["n"], w.seen, w.owes, w.broken = &progress{last: 20, epoch: "e", seq: 7}, nil, false, false
		w.o = WatchOptions{Cluster: "c", Unreadable: func(err error) { passed = append(passed, err.Error()) }}
		stream := new(memoryStream)
		w.store = stream.on()
		m := message{tt.kind, data{Event: pleg.Event{Epoch: tt.epoch, Seq: tt.seq, PodUID: "u"}, Pod: new(podState)}}
		deliver := func(sequence uint64) error {
			return w.deliver(t.Context(), &jetstream.RawStreamMsg{Subject: podSubject("c", "n", "u")}, &m, place{message: sequence})
		}
		kit.Must(t, deliver(21))
		if p := w.nodes["n"]; (len(passed) == 1) != tt.beyond || p.last != 21 || tt.beyond && p.seq != 7 {
			t.Errorf("%s: passed over %q, then %+v, want %+v", name, passed, p, tt)
		}
		if !tt.beyond {
			continue
		}
		if want := fmt.Sprintf("cannot read pleg.v2.c.n.u: it has the number %d: the last one of its node is 7", tt.seq); passed[0] != want || len(*got) > 0 {
			t.Errorf("%s: %q and %+v, want %q", name, passed, *got, want)
		}
		stream.err = errors.New("broken")
		if err := deliver(22); !errors.Is(err, stream.err) || !w.broken { // the next connection begins with a replay
			t.Errorf("%s: %v, complete: %v", name, err, !w.broken)
		}
		stream.err, w.nodes["n"], w.broken = nil, &progress{last: 21, epoch: "e", seq: 7, doubted: true}, false
		*got = nil
		if kit.Must(t, deliver(22)); !slices.Equal(typesOf(*got), []pleg.EventType{pleg.Gap, pleg.Synced}) || (*got)[0].Reason != pleg.HistoryTooShort || (*got)[0].Node != "n" || w.nodes["n"].last != 22 || w.broken || (*got)[1].At != (place{message: 22}).position() {
			t.Errorf("%s, twice: %+v, want the state of the node", name, *got)
		}
		raw := &jetstream.RawStreamMsg{Subject: podSubject("c", "n", "u"), Sequence: 30, Header: nats.Header{batchSequence: {"2"}}} // one is missing before it
		if kit.Must(t, w.deliver(t.Context(), raw, &m, place{message: 30})); len(*got) != 4 || (*got)[2].Type != pleg.Gap || (*got)[3].At != (place{message: 30}).position() {
			t.Errorf("%s, after a hole: %+v, want the state of the node up to 30", name, (*got)[2:])
		}
	}
}

// newTestWatch returns a watch that receives the states of all nodes, and the events that it delivers.
func newTestWatch(t *testing.T) (w *watch, got *[]Event) {
	t.Helper()
	all, err := filter.New(pleg.Filter{})
	kit.Must(t, err)
	got = new([]Event)
	return &watch{
		js: fakeJetStream{}, filter: all, nodes: make(map[string]*progress), seen: make(map[string]struct{}), owes: true, broken: true,
		yield: func(ev Event, _ error) bool { *got = append(*got, ev); return true },
	}, got
}

// message gives the watch a message of the node n.
func (w *watch) message(t *testing.T, sequence uint64, m message) {
	t.Helper()
	subject := nodeSubject("c", "n")
	if m.PodUID != "" {
		subject = podSubject("c", "n", m.PodUID)
	}
	kit.Must(t, w.deliver(t.Context(), &jetstream.RawStreamMsg{Subject: subject}, &m, place{stream: 1, message: sequence}))
}

// typesOf returns the types of events.
func typesOf(events []Event) (types []pleg.EventType) {
	for _, ev := range events {
		types = append(types, ev.Type)
	}
	return types
}

// A watch delivers the Gap of an agent and the states that follow as they come, without a request to the server. The
// agent may have lost events of the same pipeline.
func TestStatesAfterAGap(t *testing.T) {
	for epoch, seq := range map[string]uint64{"d": 7, "e": 0} {
		t.Run(epoch, func(t *testing.T) { testStatesAfterAGap(t, &progress{epoch: epoch, seq: seq}) })
	}
}

func testStatesAfterAGap(t *testing.T, before *progress) {
	w, got := newTestWatch(t)
	w.nodes["n"], w.seen, w.owes, w.broken = before, nil, false, false
	started := pleg.Event{Epoch: "e", Seq: 1, Type: pleg.ContainerStarted, PodUID: "u", ContainerID: "c"}
	state := &podState{Events: []pleg.Event{started}}
	for i, m := range []message{
		{ofGap, data{Event: pleg.Event{Epoch: "d", Seq: 9, Reason: pleg.OtherEpoch, Missed: 2}}},
		{ofState, data{Event: pleg.Event{Epoch: "e", Seq: 1, PodUID: "u"}, Pod: state}},
		{kind: ofAgent},
		{ofSynced, data{Event: pleg.Event{Epoch: "e", Seq: 4}}},
		{ofState, data{Event: pleg.Event{Epoch: "e", Seq: 4, PodUID: "u"}, Pod: state}}, // published again
		{ofEvent, data{Event: pleg.Event{Epoch: "e", Seq: 5, Type: pleg.ContainerDied, PodUID: "u", ContainerID: "c"}, Pod: state}},
	} {
		w.message(t, uint64(i+1), m)
		w.message(t, uint64(i+1), m) // a replay of the node has received it already
	}
	for _, ev := range *got {
		if hasPosition := ev.At != ""; ev.Node != "n" || hasPosition != (ev.Type == pleg.Synced || ev.Type == pleg.ContainerDied) || ev.Replayed != (ev.Type == pleg.ContainerStarted) {
			t.Errorf("got %+v", ev)
		}
	}
	if want := []pleg.EventType{pleg.Gap, pleg.ContainerStarted, pleg.Synced, pleg.ContainerDied}; !slices.Equal(typesOf(*got), want) || (*got)[0].Missed != 2 || (*got)[0].Epoch != "d" || (*got)[0].Seq != 9 || (*got)[2].Epoch != "e" || (*got)[2].Seq != 4 {
		t.Errorf("got %+v, want %v", *got, want)
	}
}

// A pod that changes while a watch receives the states of all comes twice: first its state, then the event.
func TestEventWithinTheStates(t *testing.T) {
	w, got := newTestWatch(t)
	for i, kind := range []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied} {
		seq := uint64(i + 1)
		ev := pleg.Event{Epoch: "e", Seq: seq, Type: kind, PodUID: "u", ContainerID: "c"}
		w.message(t, seq, message{ofEvent, data{Event: ev, Pod: &podState{Events: []pleg.Event{ev}}}})
	}
	ev := pleg.Event{Epoch: "e", Seq: 3, Type: pleg.ContainerStarted, PodUID: "v", ContainerID: "d"} // of another pod: it is news too
	w.message(t, 3, message{ofEvent, data{Event: ev, Pod: &podState{Events: []pleg.Event{ev}}}})
	if want := []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerStarted}; !slices.Equal(typesOf(*got), want) || !(*got)[0].Replayed || (*got)[1].Replayed || (*got)[2].Replayed {
		t.Errorf("got %+v, want the state and then the events", *got)
	}
}

// The state of a replica that lags behind is older than the delivered events: those that the replica sends later are
// not news.
func TestStateOfAReplicaBehind(t *testing.T) {
	w := watch{
		nodes: make(map[string]*progress), seen: make(map[string]struct{}), known: place{message: 20},
		yield: func(Event, error) bool { return true },
	}
	for seq, want := range map[uint64]error{10: nil, 20: errBehind, 21: nil} {
		w.seen = map[string]struct{}{podSubject("c", "n", "u"): {}}
		if seq == 10 {
			w.seen = make(map[string]struct{})
		}
		m := message{ofState, data{Event: pleg.Event{Epoch: "e", Seq: seq, PodUID: "u"}, Pod: new(podState)}}
		if err := w.deliver(t.Context(), &jetstream.RawStreamMsg{Subject: podSubject("c", "n", "u")}, &m, place{message: seq}); !errors.Is(err, want) {
			t.Errorf("message %d: %v, want %v", seq, err, want)
		}
		clear(w.nodes)
	}
}

// The first message of a node, to a watch that receives the states of all, may be a Gap: its states follow, and then
// one Synced. A server that is behind then sends messages from before the watch: all Synced wait for the end.
func TestReplayUnderWay(t *testing.T) {
	w, got := newTestWatch(t)
	started := pleg.Event{Epoch: "e", Seq: 1, Type: pleg.ContainerStarted, ContainerID: "c"}
	state := &podState{Events: []pleg.Event{started}}
	begun := uint64(0) // the number of the first message
	for i, m := range []message{
		{ofGap, data{Event: pleg.Event{Reason: NodeNew}}},
		{ofState, data{Event: pleg.Event{Epoch: "e", Seq: 1, PodUID: "u"}, Pod: state}},
		{ofSynced, data{Event: pleg.Event{Epoch: "e", Seq: 1}}},
		{ofEvent, data{Event: pleg.Event{Epoch: "e", Seq: 2, Type: pleg.ContainerDied, PodUID: "u", ContainerID: "c"}, Pod: state}},
	} {
		w.message(t, uint64(i+1), m)
		begun = cmp.Or(begun, w.nodes["n"].last)
	}
	if (*got)[0].Node != "n" || begun != 1 {
		t.Errorf("the Gap is %+v, and the states follow message %d", (*got)[0], begun)
	}
	w.at = place{1, 4, 9}
	kit.Must(t, w.sendAllSynced())
	kit.Must(t, w.sendAllSynced()) // of the next connection
	if want := []pleg.EventType{pleg.Gap, pleg.ContainerStarted, pleg.ContainerDied, pleg.Synced, pleg.Synced, pleg.Synced}; !slices.Equal(typesOf(*got), want) {
		t.Errorf("got %v, want %v", typesOf(*got), want)
	} else if ends := (*got)[3:]; ends[0].Node != "n" || ends[0].Seq != 2 || ends[0].At != w.at.position() || ends[1].At != ends[0].At || ends[1].Node != "" || ends[2].Node != "" {
		t.Errorf("got %+v, want one Synced of the node, up to its last event", ends)
	}
}

// The stream contains only one message of a node that was forgotten. A mirror also contains its pods:
// they are gone.
func TestForgottenNodeOfAMirror(t *testing.T) {
	for pods, want := range [][]pleg.EventType{{pleg.Synced}, {pleg.ContainerStarted, pleg.Gap, pleg.Synced, pleg.Synced}} {
		w, got := newTestWatch(t)
		if pods > 0 {
			started := pleg.Event{Epoch: "e", Seq: 1, Type: pleg.ContainerStarted, PodUID: "u", ContainerID: "c"}
			w.message(t, 1, message{ofState, data{Event: started, Pod: &podState{Events: []pleg.Event{started}}}})
		}
		w.message(t, 2, message{kind: ofGone})
		kit.Must(t, w.sendAllSynced())
		if p := w.nodes["n"]; p.epoch != "" || p.last != 2 {
			t.Errorf("%d pods: the node still has %+v", pods, p)
		}
		if !slices.Equal(typesOf(*got), want) {
			t.Errorf("%d pods: got %v, want %v", pods, typesOf(*got), want)
		} else if pods > 0 && ((*got)[1].Reason != NodeGone || (*got)[1].Node != "n") {
			t.Errorf("the Gap is %+v", (*got)[1])
		}
	}
}

// Only a leader that hears from most of the others knows the content of the stream.
func TestLeads(t *testing.T) {
	replica := func(name string, active time.Duration) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Name: name, Active: active}
	}
	for name, tt := range map[string]struct {
		cluster *jetstream.ClusterInfo
		want    bool
	}{
		"a server on its own":           {nil, true},
		"one replica":                   {&jetstream.ClusterInfo{Leader: "a"}, true},
		"no leader":                     {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{replica("a", time.Second), replica("b", time.Second)}}, false},
		"in touch with both":            {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("b", time.Millisecond), replica("c", time.Second)}}, true},
		"in touch with one":             {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("b", time.Hour), replica("c", time.Second)}}, true},
		"in touch with one of four":     {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("b", time.Hour), replica("c", time.Hour), replica("d", time.Hour), replica("e", 1)}}, false},
		"just before an election":       {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("b", time.Hour), replica("c", 4*time.Second-1)}}, true},
		"when an election is possible":  {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("b", time.Hour), replica("c", 4*time.Second)}}, false},
		"the leader that was stopped":   {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("b", 5*time.Second), replica("c", 5*time.Second)}}, false},
		"a leader that nobody answered": {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("b", 0), replica("c", 0)}}, false},
		"a replica that answers":        {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{replica("a", 1), replica("c", 1)}}, false},
	} {
		if _, err := (&memoryStream{info: jetstream.StreamInfo{Cluster: tt.cluster}}).on().info(t.Context()); (err == nil) != tt.want || err != nil && err.Error() != "stream: not connected to : the server that answered no longer leads the stream" {
			t.Errorf("%s: %v, want its answer: %t", name, err, tt.want)
		}
	}
}
