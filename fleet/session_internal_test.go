package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// newTestPublisher returns a publisher that has begun to publish in a stream.
func newTestPublisher(t *testing.T, stream *memoryStream) (*Publisher, prometheus.Gatherer) {
	t.Helper()
	pipe, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
	kit.Must(t, err)
	registry := prometheus.NewPedanticRegistry()
	p, err := NewPublisher(PublisherOptions{Conn: new(nats.Conn), Source: pipe, Cluster: "c", Node: "n", Registerer: registry})
	kit.Must(t, err)
	p.js, p.store, p.pods, p.gone = fakeJetStream{}, stream.on(), make(map[string]*record), make(map[string]*record)
	p.beats = time.NewTicker(time.Hour)
	t.Cleanup(p.beats.Stop)
	return p, registry
}

// outgoingEvents returns messages about events of a pod.
func outgoingEvents(r *record, n int) (queue []outgoing) {
	for range n {
		queue = append(queue, outgoing{kind: ofEvent, subject: "s", record: r})
	}
	return queue
}

// An acknowledgement is about the first messages of the queue, and ends what a refusal began.
func TestAcknowledged(t *testing.T) {
	synctest.Test(t, testAcknowledged)
}

func testAcknowledged(t *testing.T) {
	p, registry := newTestPublisher(t, new(memoryStream))
	a, b := new(record), new(record)
	p.queue, p.alone, p.unanswered = append(outgoingEvents(a, 1), append(outgoingEvents(b, 2), outgoingEvents(a, 1)...)...), true, 9
	p.queue[0].kind = ofState
	for i := range p.queue {
		p.queue[i].observedAt = time.Now()
	}
	time.Sleep(time.Hour)
	p.acknowledged(3, 40)
	p.works(t.Context())
	if a.sequence != 38 || a.count != 1 || b.sequence != 40 || b.count != 2 || p.last != 40 || len(p.queue) != 1 || !a.stored.Equal(time.Now()) || !b.stored.Equal(time.Now()) {
		t.Errorf("the records are %+v and %+v, the last message is %d, and %d wait", a, b, p.last, len(p.queue))
	}
	if s := p.Status(); !s.LastAck.Equal(time.Now()) || s.Err != nil {
		t.Errorf("the status is %+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _ = p.loop.Pause(ctx, context.DeadlineExceeded, 0); !errors.Is(p.Status().Err, context.DeadlineExceeded) {
		t.Errorf("after an error the status is %+v", p.Status())
	}
	if p.alone || p.timeout() != requestTimeout {
		t.Errorf("after an acknowledgement messages are sent alone: %v, and a request takes %v", p.alone, p.timeout())
	}
	kit.RequireMetric(t, registry, 2, "pleg_fleet_published_events_total")
	kit.RequireMetric(t, registry, 2, "pleg_fleet_lag_seconds")
	kit.RequireSum(t, registry, 2*time.Hour.Seconds(), "pleg_fleet_lag_seconds")
}

// While the server does not answer, the queue takes no more than one batch: other events wait in the pipeline.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPublisher(t, new(memoryStream))
		events := make(chan pleg.Event, 1)
		events <- pleg.Event{Type: pleg.Bookmark}
		for waiting, left := range map[int]int{maxBatch: 1, maxBatch - 1: 0} {
			p.queue, p.sent, p.parts, p.late = outgoingEvents(new(record), 1+waiting), 1, []part{{1, fakeAnswer{}}}, time.NewTimer(time.Second)
			if err := p.step(t.Context(), events); (err == nil) != (left == 0) || len(events) != left {
				t.Errorf("%d messages wait: %v, and %d events are left, want %d", waiting, err, len(events), left)
			}
			if left == 0 {
				events <- pleg.Event{Type: pleg.Bookmark}
			}
		}
	})
}

// The last events of a pipeline that ends are published.
func TestLastEventsArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPublisher(t, new(memoryStream))
		p.queue, p.at = outgoingEvents(new(record), 1), pleg.Position{Epoch: "e", Seq: 1}
		p.fails(errors.New("broken")) // before
		events := make(chan pleg.Event)
		close(events)
		if err := p.run(t.Context(), events); !errors.Is(err, exporter.ErrSourceEnded) || len(p.queue) > 0 {
			t.Errorf("run() = %v, and %d messages are left", err, len(p.queue))
		}
		if f := p.fault.Load(); f != nil {
			t.Errorf("it publishes, and says %+v", f)
		}
		p.js, p.queue = fakeJetStream{err: errors.New("broken")}, outgoingEvents(new(record), 1)
		if err := p.run(t.Context(), events); fmt.Sprint(err) != "publish: not connected to : broken" {
			t.Errorf("run() = %v if that fails", err)
		}
		p.queue = nil
		last := make(chan pleg.Event, 1)
		last <- pleg.Event{Epoch: "e", Seq: 2, Type: pleg.ContainerStarted, PodUID: "u"}
		close(last)
		if err := p.run(t.Context(), last); !errors.Is(err, exporter.ErrSourceEnded) || len(p.queue) != 1 {
			t.Errorf("run() = %v, and %d messages are left, want the last one", err, len(p.queue))
		}
		var got []*nats.Msg
		p.js, p.queue = fakeJetStream{got: &got}, nil
		last = make(chan pleg.Event, 1)
		last <- pleg.Event{Epoch: "e", Seq: 3, Type: pleg.ContainerDied, PodUID: "u"}
		close(last)
		if err := p.run(t.Context(), last); !errors.Is(err, exporter.ErrSourceEnded) || len(p.queue) > 0 || len(got) != 1 {
			t.Errorf("run() = %v; %d messages are published and %d are left, want one published", err, len(got), len(p.queue))
		}
	})
}

// Events that come together are published together, as many as fit in a batch.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPublisher(t, new(memoryStream))
		p.o.Conn, p.at = connectTo(t, 1<<20), pleg.Position{Epoch: "e", Seq: 5}
		events := make(chan pleg.Event, 1500)
		for seq := range uint64(1500) {
			events <- pleg.Event{Epoch: "e", Seq: 6 + seq, Type: pleg.ContainerStarted, PodUID: "u"}
		}
		p.queue, p.sent = outgoingEvents(new(record), 10), 10
		kit.Must(t, p.gather(t.Context(), <-events, true, events))
		if len(p.queue) != 1010 || len(events) != 500 {
			t.Errorf("%d messages, and %d events wait; want 1010 and 500", len(p.queue), len(events))
		}
		p.at.Seq--
		p.queue, p.sent = nil, 0
		if err := p.gather(t.Context(), <-events, true, events); err == nil || len(events) != 499 {
			t.Errorf("%v after a hole, and %d events wait, want 499", err, len(events))
		}
	})
}

// If another node publishes before a row, its messages are sent again at once.
func TestRowIsSentAgain(t *testing.T) {
	p, _ := newTestPublisher(t, streamOf(jetstream.RawStreamMsg{Sequence: 7}))
	refused := fakeAnswer{failed: make(chan error, 1)}
	refused.failed <- &jetstream.APIError{ErrorCode: 10070}
	p.queue, p.sent, p.parts, p.row, p.last, p.late = outgoingEvents(new(record), 2), 2, []part{{2, refused}}, true, 7, time.NewTimer(time.Hour)
	if err := p.step(t.Context(), nil); err != nil || p.sent != 0 || len(p.parts) != 0 || len(p.queue) != 2 || p.crowded != 32 {
		t.Errorf("%v; %d of %d messages are in flight, want none; the next are no row: %v", err, p.sent, len(p.queue), p.crowded > 0)
	}
	for name, tt := range map[string]struct {
		row  bool
		code jetstream.ErrorCode
		want string
	}{
		"another refusal": {true, 10071, "publish: "}, "without a row": {false, wrongLastMessage, "publish: "}, "without an answer": {true, wrongLastMessage, "read message: "},
	} {
		p, _ := newTestPublisher(t, &memoryStream{mute: errors.New("broken")})
		refused.failed <- &jetstream.APIError{ErrorCode: tt.code}
		p.queue, p.sent, p.parts, p.row, p.late = outgoingEvents(new(record), 2), 2, []part{{2, refused}}, tt.row, time.NewTimer(time.Hour)
		if err := p.step(t.Context(), nil); !strings.HasPrefix(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %s…", name, err, tt.want)
		}
	}
}

// All but the last message go out without a wait for an answer: those of a row name the one before them, those of a batch are
// counted.
func TestRowAndBatch(t *testing.T) {
	ids := map[string]bool{"": true, "0": true} // a server drops what has the id of an earlier message
	for kinds, batch := range map[string]bool{"eee": false, "gse": true} {
		s := newMemoryServer(t)
		p, _ := newTestPublisher(t, s.stream)
		if p.queue = outgoingEvents(new(record), 3); batch {
			p.queue[0].kind, p.queue[1].kind = ofGap, ofState
		}
		if err := p.send(); fmt.Sprint(err) != "publish: not connected to : nats: headers not supported by this server" {
			t.Errorf("%s: send() = %v without a connection", kinds, err)
		}
		p.js, p.o.Conn, p.id, p.inRows = s, s.conn, "x", 9
		kit.Must(t, p.send())
		p.late.Stop()
		var got, want []nats.Header
		for i, m := range s.stream.held {
			h := nats.Header{"Content-Type": {contentType}}
			switch {
			case i == 0:
				h[jetstream.ExpectedLastSubjSeqHeader], h[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{"0"}, []string{p.all}
			case !batch:
				h[jetstream.ExpectedLastMsgIDHeader] = []string{fmt.Sprintf("%s.%d", p.id, i)}
			}
			if !batch {
				h[jetstream.MsgIDHeader] = []string{fmt.Sprintf("%s.%d", p.id, i+1)}
			} else if h[batchID], h[batchSequence] = []string{p.id}, []string{fmt.Sprint(i + 1)}; i == 2 {
				h[batchCommit] = []string{"1"}
			}
			got, want = append(got, m.Header), append(want, h)
		}
		if !reflect.DeepEqual(got, want) || len(got) != 3 || p.id == "x" || ids[p.id] || p.row == batch || p.sent != 3 || len(p.parts) != 1 || p.parts[0].size != 3 {
			t.Errorf("%s: %v; %d in flight in %+v; want %v", kinds, got, p.sent, p.parts, want)
		}
		ids[p.id] = true
	}
}

// Each message names the one before it: the newest of its node, or the one before it in its row. Those of a batch are
// counted.
func TestHeaders(t *testing.T) {
	first := nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"7"}, jetstream.ExpectedLastSubjSeqSubjHeader: {"pleg.v2.c.n.>"}}
	for name, tt := range map[string]struct {
		kind kind
		sent int
		want func(p *Publisher) nats.Header
	}{
		"an event": {ofEvent, 0, func(*Publisher) nats.Header { return first }},
		"an event behind it": {ofEvent, 1, func(*Publisher) nats.Header {
			return nats.Header{jetstream.ExpectedLastMsgIDHeader: {"x.1"}, jetstream.MsgIDHeader: {"x.2"}}
		}},
		"a Gap": {ofGap, 0, func(p *Publisher) nats.Header {
			h := nats.Header{batchID: {p.id}, batchSequence: {"1"}, batchCommit: {"1"}}
			maps.Copy(h, first)
			return h
		}},
	} {
		p, _ := newTestPublisher(t, new(memoryStream))
		var got []*nats.Msg
		p.js, p.queue, p.sent, p.last, p.id, p.inRows = fakeJetStream{got: &got}, outgoingEvents(new(record), 1+tt.sent), tt.sent, 7, "x", tt.sent
		p.queue[0].kind = tt.kind
		kit.Must(t, p.send())
		want := maps.Clone(tt.want(p))
		want["Content-Type"] = []string{"application/cloudevents+json"}
		if p.late.Stop(); len(got) != 1 || !reflect.DeepEqual(got[0].Header, want) || p.sent != 1+tt.sent || len(p.parts) != 1 {
			t.Errorf("%s: %+v with %d in flight, want %v", name, got, p.sent, want)
		}
	}
}

// A message with its headers is not larger than the server and the stream allow, whatever the length of its names.
func TestMessageFitsWithItsHeaders(t *testing.T) {
	const most = 8000
	for name, tt := range map[string]struct {
		payload int
		stream  int32
	}{"the server": {most, -1}, "the server, and not the stream,": {most, 1 << 20}, "the stream": {1 << 20, most}} {
		p, _ := newTestPublisher(t, &memoryStream{info: jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxMsgSize: tt.stream}}})
		var got []*nats.Msg
		p.o.Conn, p.js, p.all = connectTo(t, tt.payload), fakeJetStream{got: &got}, allOf(strings.Repeat("c", maxCluster), strings.Repeat("n", maxName))[0]
		p.last, p.source = math.MaxUint64, ceSource(strings.Repeat("c", maxCluster), strings.Repeat("n", maxName))
		for n := most - 2000; n < most; n += 25 {
			r := newRecord("u", "web", "shop")
			r.apply(&pleg.Event{Type: pleg.ContainerStarted, ContainerID: "c"})
			r.setStatus(&pleg.PodStatus{Containers: []*pleg.ContainerStatus{{Message: strings.Repeat("m", n)}}})
			p.queue, p.sent = nil, 0
			p.enqueueState(t.Context(), "s", r)
			kit.Must(t, p.send())
		}
		p.late.Stop()
		largest := slices.MaxFunc(got, func(a, b *nats.Msg) int { return cmp.Compare(len(a.Data), len(b.Data)) })
		if size := largest.Size() - len(largest.Subject); size > most || size < most-1024 {
			t.Errorf("%s takes %d bytes, and the largest message has %d", name, most, size)
		}
	}
}

// States that were all published at one time are not published again at one time, and those of a stream that keeps
// everything never. A node without pods says that its agent lives.
func TestRefreshIsSpread(t *testing.T) {
	stream := &memoryStream{info: jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxAge: time.Hour}}}
	p, _ := newTestPublisher(t, stream)
	old := time.Now().Add(-31 * time.Minute)
	p.pods["newer"] = &record{stored: time.Now().Add(-29 * time.Minute)}
	p.own.stored = time.Now()
	if p.refresh(t.Context()); len(p.queue) > 0 {
		t.Errorf("%d states before half an hour has passed", len(p.queue))
	}
	for n := range 1700 {
		p.pods[fmt.Sprint(n)] = &record{stored: old}
	}
	if p.refresh(t.Context()); len(p.queue) != 2 { // 1800 times until the next 30 minutes have passed
		t.Errorf("%d states at once, want 2", len(p.queue))
	}
	for _, o := range p.queue {
		if o.kind != ofState || p.pods[o.subject] != o.record {
			t.Errorf("a message of kind %s has the subject %s, and another record", o.kind, o.subject)
		}
	}
	stream.info.Config.MaxAge, p.queue = 0, nil
	if p.refresh(t.Context()); len(p.queue) > 0 {
		t.Errorf("%d messages, although the stream keeps those that it has", len(p.queue))
	}
	stream.info.Config.MaxAge, p.pods, p.own.stored = time.Hour, map[string]*record{"newer": {stored: time.Now()}}, old
	if p.refresh(t.Context()); len(p.queue) != 1 || p.queue[0].kind != ofAgent || p.queue[0].subject != p.node {
		t.Errorf("%+v, want one message of the node", p.queue)
	} else if m, err := decode(p.queue[0].body); err != nil || m.kind != ofAgent || m.ObservedAt.IsZero() {
		t.Errorf("it is read as %+v, %v", m, err)
	}
}

// A pod that is gone is no state to publish again. It is forgotten once the server has no message of it.
func TestGonePodIsForgotten(t *testing.T) {
	p, _ := newTestPublisher(t, new(memoryStream))
	p.pods["s"], p.gap = newRecord("u", "web", "shop"), new(pleg.Event)
	p.enqueueReplay(t.Context(), pleg.Event{Type: pleg.Synced, Epoch: "e", Seq: 7})
	var got []string
	for _, o := range p.queue {
		m, err := decode(o.body)
		kit.Must(t, err)
		got = append(got, fmt.Sprint(o.kind, " ", o.subject, " ", m.Epoch, m.Seq, m.PodUID, m.PodName, m.PodNamespace, m.ObservedAt.IsZero()))
	}
	if want := []string{"node.gap pleg.v2.c.n.= 0true", "pod.state s e7uwebshopfalse", "node.synced pleg.v2.c.n.= e7true"}; !slices.Equal(got, want) || len(p.pods) != 0 || len(p.gone) != 1 {
		t.Errorf("%q; %d pods, %d that are gone; want %q", got, len(p.pods), len(p.gone), want)
	}
	for reason, want := range map[string][2]kind{NodeNew: {ofState, ofGap}, pleg.OtherEpoch: {ofGap, ofGap}} { // of one server, of three
		for i, replicas := range []int{1, 3} {
			p.stream.CachedInfo().Config.Replicas, p.gap, p.queue = replicas, &pleg.Event{Reason: reason}, nil
			if p.enqueueReplay(t.Context(), pleg.Event{Type: pleg.Synced}); p.queue[0].kind != want[i] {
				t.Errorf("%s of %d servers: the first message is sent as %s, want %s", reason, replicas, p.queue[0].kind, want[i])
			}
		}
	}
	if missing, err := p.missesAnEnd(t.Context(), nil, nil); missing || err != nil || len(p.gone) != 0 {
		t.Errorf("%v, %v, and %d pods are left, want none", missing, err, len(p.gone))
	}
}

// After an error the newest message of the node shows what the server has stored.
func TestSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		newest uint64
		body   string
		left   int
		lost   bool
	}{
		"nothing":                          {5, "earlier", 3, false},
		"one message":                      {6, "a", 2, false},
		"two messages":                     {7, "b", 1, false},
		"everything":                       {8, "c", 0, false},
		"a message of another agent":       {6, "other", 3, true},
		"less than it had acknowledged":    {4, "earlier", 3, true},
		"the same text with a lost number": {4, "a", 3, true},
	} {
		p, _ := newTestPublisher(t, streamOf(jetstream.RawStreamMsg{Sequence: tt.newest, Data: []byte(tt.body)}))
		for _, body := range []string{"a", "b", "c"} {
			p.queue = append(p.queue, outgoing{body: []byte(body), record: new(record)})
		}
		p.last, p.sent, p.parts = 5, 3, []part{{3, fakeAnswer{}}}
		err := p.settle(t.Context())
		if (err != nil) != tt.lost || (p.pods == nil) != tt.lost || len(p.queue) != tt.left || !tt.lost && (p.sent != 0 || p.parts != nil || p.last != tt.newest) {
			t.Errorf("the server has stored %s: %v; %d messages wait, %d of them in flight, after %d", name, err, len(p.queue), p.sent, p.last)
		}
	}
	const lost = "the server has lost messages that it acknowledged, or has messages of another agent"
	for mute, want := range map[error]string{jetstream.ErrStreamNotFound: lost, context.DeadlineExceeded: "read message: not connected to : context deadline exceeded"} {
		p, _ := newTestPublisher(t, &memoryStream{mute: mute})
		p.o.Conn, p.log = connectTo(t, 100), slog.New(slog.DiscardHandler)
		p.pods["s"], p.currentAsOf = new(record), time.Now()
		if err := p.publishOnce(t.Context()); fmt.Sprint(err) != want || (p.pods == nil) != (want == lost) || p.unanswered > 0 == (want == lost) || p.fault.Load().Why != want {
			t.Errorf("%v: %v, and %d attempts had no answer; want %s", mute, err, p.unanswered, want)
		}
	}
}

// Once the server has stored all, publishing works, unless it waits for the present state.
func TestNothingWaits(t *testing.T) {
	for waiting, gap := range map[int]*pleg.Event{0: nil, 1: nil, 2: {}} {
		p, _ := newTestPublisher(t, new(memoryStream))
		p.queue, p.gap = outgoingEvents(new(record), waiting%2), gap
		p.fails(errors.New("broken"))
		if err := p.resume(t.Context()); err != nil || (p.fault.Load() == nil) != (waiting == 0) {
			t.Errorf("%v; with %d messages and the Gap %v the fault is %+v", err, waiting%2, gap, p.fault.Load())
		}
	}
}

// An agent begins again if the newest message of a pod or of its node was removed or overwritten, or the message that a pod is
// gone. Older messages expire.
func TestVerify(t *testing.T) {
	end := []byte(`{"data":{"epoch":"e","pod":{"gone":true}}}`)
	for name, tt := range map[string]struct {
		change func(p *Publisher, s *memoryStream)
		lost   bool
	}{
		"nothing has changed":      {func(_ *Publisher, s *memoryStream) { s.mute = errors.New("no message is asked for") }, false},
		"an older message expired": {func(p *Publisher, _ *memoryStream) { p.pods["n.pod"].count = 2 }, false},
		"the pod was overwritten":  {func(_ *Publisher, s *memoryStream) { s.add("n.pod", nil) }, true},
		"the node was overwritten": {func(_ *Publisher, s *memoryStream) { s.add("n.own", nil) }, true},
		"the pod was removed":      {func(_ *Publisher, s *memoryStream) { s.remove("n.pod") }, true},
		"the node was removed":     {func(_ *Publisher, s *memoryStream) { s.remove("n.own") }, true},
		"the end was overwritten":  {func(_ *Publisher, s *memoryStream) { s.add("n.gone", nil) }, true},
		"the end came again":       {func(_ *Publisher, s *memoryStream) { s.add("n.gone", end) }, false},
		"the end expired":          {func(_ *Publisher, s *memoryStream) { s.remove("n.gone") }, false},
		"the node has another one": {func(p *Publisher, _ *memoryStream) { p.own = record{sequence: 9, count: 7} }, true},
		"the end is a state":       {func(_ *Publisher, s *memoryStream) { s.add("n.gone", []byte(`{"data":{"epoch":"e","pod":{}}}`)) }, true},
		"the end is of no pod": {func(_ *Publisher, s *memoryStream) {
			s.add("n.gone", []byte(`{"type":"io.github.pleg-pipeline.node.gap.v1","data":{}}`))
		}, true},
		"the pod came back": {func(p *Publisher, s *memoryStream) {
			s.held[2].Data = nil
			p.pods["n.gone"], p.gone["n.gone"].count = &record{sequence: 3, count: 1}, 0
		}, false},
		"the newest message was lost": {func(p *Publisher, _ *memoryStream) { p.last = 4 }, true},
		"a backup was restored":       {func(p *Publisher, _ *memoryStream) { p.last, p.newestOfAll = 2, 9 }, true},
	} {
		s := new(memoryStream)
		s.add("n.own", nil)
		s.add("n.pod", nil)
		s.add("n.gone", end)
		p, _ := newTestPublisher(t, s)
		p.all, p.node, p.last, p.own = "n.*", "n.own", 3, record{sequence: 1, count: 1}
		p.pods["n.pod"], p.gone["n.gone"] = &record{sequence: 2, count: 1}, &record{sequence: 3, count: 1}
		tt.change(p, s)
		if err := p.verify(t.Context()); (err != nil) != tt.lost || (p.pods == nil) != tt.lost {
			t.Errorf("%s: %v, and it begins again: %v, want %v", name, err, p.pods == nil, tt.lost)
		}
		if !tt.lost && (p.newestOfAll != s.state().State.LastSeq || p.pods["n.pod"].count != 1) {
			t.Errorf("%s: the newest message of all is %d, and the pod has %d", name, p.newestOfAll, p.pods["n.pod"].count)
		}
	}
	many := new(memoryStream)
	last, _ := newTestPublisher(t, many)
	many.add(last.node, nil)
	last.own = record{sequence: 1, count: 1}
	for n := range maxEnds + 1 {
		many.add(fmt.Sprint("pleg.v2.c.n.", n), end)
		last.gone[fmt.Sprint("pleg.v2.c.n.", n)] = new(record)
	}
	for _, want := range []int{1, 0} {
		left := 0
		kit.Must(t, last.verify(t.Context()))
		for _, r := range last.gone {
			left += int(1 - r.count)
		}
		if left != want {
			t.Errorf("%d pods that are gone are left for the next look, want %d", left, want)
		}
	}
	last.gone["pleg.v2.c.n.0"].count, many.mute = 9, errors.New("broken")
	if err := last.verify(t.Context()); !errors.Is(err, many.mute) || err.Error() != "read the messages of the node: read message: not connected to : broken" || last.pods == nil {
		t.Errorf("verify() = %v if the server does not answer", err)
	}
	last.own.count, last.gone = 9, nil
	if err := last.verify(t.Context()); fmt.Sprint(err) != "read the messages of the node: create consumer: not connected to : broken" {
		t.Errorf("verify() = %v if the server does not send the messages", err)
	}
	p, _ := newTestPublisher(t, &memoryStream{err: jetstream.ErrStreamNotFound})
	if err := p.verify(t.Context()); !errors.Is(err, jetstream.ErrStreamNotFound) || p.pods == nil {
		t.Errorf("without a stream: %v, and it begins again: %v; want that the next session looks", err, p.pods == nil)
	}
}

// The next event becomes a message, an earlier one does not, and after a hole the publisher begins again.
func TestEventsFollowEachOther(t *testing.T) {
	for seq, messages := range map[uint64]int{5: 0, 6: 1, 7: 0} {
		p, _ := newTestPublisher(t, new(memoryStream))
		p.at = pleg.Position{Epoch: "e", Seq: 5}
		at := time.Unix(1000, 0)
		if err := p.accept(t.Context(), pleg.Event{Type: pleg.Bookmark, ObservedAt: at}); err != nil || !p.currentAsOf.Equal(at) {
			t.Errorf("after a mark of %v all is known as of %v, %v", at, p.currentAsOf, err)
		}
		err := p.accept(t.Context(), pleg.Event{
			Epoch: "e", Seq: seq, Type: pleg.ContainerStarted, PodUID: "u", PodName: "web", PodNamespace: "shop", ObservedAt: at, StartedAt: at.Add(-time.Hour),
		})
		for _, o := range p.queue {
			if r := p.pods[o.subject]; r == nil || o.record != r || r.uid != "u" || r.name != "web" || r.namespace != "shop" || !o.observedAt.Equal(at) || !strings.Contains(string(o.body), `"source":"/clusters/c/nodes/n","type":"io.github.pleg-pipeline.container.started.v1",`) || o.kind != ofEvent {
				t.Errorf("the message is %s of %+v, observed at %v", o.body, o.record, o.observedAt)
			}
		}
		if hole := seq == 7; len(p.queue) != messages || (err != nil) != hole || (p.pods == nil) != hole || p.at.Seq != uint64(5+messages) {
			t.Errorf("event %d: %d messages up to %d, %v, begins again: %v", seq, len(p.queue), p.at.Seq, err, p.pods == nil)
		}
		if messages == 0 {
			continue
		}
		kit.Must(t, p.accept(t.Context(), pleg.Event{Epoch: "e", Seq: 7, Type: pleg.ContainerRemoved, PodUID: "u"}))
		if len(p.pods) > 0 || p.gone[podSubject("c", "n", "u")] == nil {
			t.Errorf("%d pods are left, and gone are %v", len(p.pods), p.gone)
		}
	}
}

// Each pod that is published in part is counted, and the first is logged.
func TestPodInPart(t *testing.T) {
	p, registry := newTestPublisher(t, new(memoryStream))
	var log kit.Log
	p.log = log.Logger()
	for range 2 {
		p.enqueueState(t.Context(), "s", newRecord("u", "web", "shop")) // the server takes no byte
		log.RequireLines(t, 1, `level=WARN msg="a pod is published in part" namespace=shop pod=web why="the state is too large to publish whole: `)
	}
	kit.RequireMetric(t, registry, 2, "pleg_fleet_cut_total")
	if cut := p.Status().Cut; cut != 2 {
		t.Errorf("%d pods are published in part, want 2", cut)
	}
	p.cuts.Store(0)
	p.gap = new(pleg.Event)
	for _, name := range []string{"web", strings.Repeat("w", maxText+1)} {
		kit.Must(t, p.accept(t.Context(), pleg.Event{Type: pleg.ContainerStarted, PodUID: "u", PodNamespace: "shop", PodName: name}))
	}
	kit.RequireMetric(t, registry, 3, "pleg_fleet_cut_total")
	log.RequireLines(t, 1, ` why="a name or an id is too long to publish"`)
}

// A session knows nothing of the lists of the session before.
func TestSessionForgetsTheLists(t *testing.T) {
	p, _ := newTestPublisher(t, new(memoryStream))
	p.pods, p.currentAsOf = nil, time.Now()
	if err := p.publishOnce(t.Context()); err == nil || !p.currentAsOf.IsZero() {
		t.Errorf("%v; all is known as of %v, want no time", err, p.currentAsOf)
	}
}

// A session that ends with its connection says so, whatever then fails.
func TestSessionEndsWithItsConnection(t *testing.T) {
	s := newMemoryServer(t)
	p, _ := newTestPublisher(t, s.stream)
	p.js, p.store, p.pods, p.o.Conn = s, nil, nil, s.conn
	p.o.Health = func(ctx context.Context) (pleg.Status, error) {
		kit.Must(t, s.conn.ForceReconnect())
		<-ctx.Done()
		return pleg.Status{}, ctx.Err()
	}
	if err := p.publishOnce(t.Context()); fmt.Sprint(err) != "the connection was lost" || p.fault.Load().Why != "the connection was lost" {
		t.Errorf("it ends with %v, and the fault is %+v", err, p.fault.Load())
	}
}

// After the answer to a row, the row behind it is in flight, with the whole time for its answer.
func TestRowBehindARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPublisher(t, new(memoryStream))
		first := fakeAnswer{ok: make(chan *jetstream.PubAck, 1)}
		p.queue, p.sent, p.row, p.parts = outgoingEvents(new(record), 3), 3, true, []part{{1, first}, {2, fakeAnswer{}}}
		p.late = time.NewTimer(requestTimeout)
		time.Sleep(requestTimeout - 1)
		first.ok <- &jetstream.PubAck{Sequence: 7}
		kit.Must(t, p.step(t.Context(), nil))
		if p.sent != 2 || len(p.queue) != 2 || len(p.parts) != 1 || p.last != 7 {
			t.Errorf("%d of %d messages are in flight in %d rows, after %d", p.sent, len(p.queue), len(p.parts), p.last)
		}
		began := time.Now()
		if err := p.step(t.Context(), nil); !errors.Is(err, nats.ErrTimeout) || time.Since(began) != requestTimeout {
			t.Errorf("%v after %v, want %v after %v", err, time.Since(began), nats.ErrTimeout, requestTimeout)
		}
		p.js, p.o.Conn = fakeJetStream{}, connectTo(t, 1<<20)
		p.queue, p.sent, p.parts = outgoingEvents(new(record), 2+leastRow), 2, []part{{2, fakeAnswer{}}}
		if err := p.step(t.Context(), nil); !errors.Is(err, nats.ErrTimeout) || p.sent != 2+leastRow || len(p.parts) != 2 {
			t.Errorf("%v, and %d messages are in flight in %d rows, want all in two", err, p.sent, len(p.parts))
		}
		if p.queue = append(p.queue, outgoingEvents(new(record), leastRow)...); p.followable() {
			t.Error("a third row follows")
		}
		p.queue, p.sent, p.parts, p.js = outgoingEvents(new(record), 1), 0, nil, fakeJetStream{err: errors.New("broken")}
		if err := p.step(t.Context(), nil); fmt.Sprint(err) != "publish: broken" {
			t.Errorf("step() = %v if it cannot publish", err)
		}
	})
}

// A replay that was interrupted begins again: pods that are not in it are gone.
func TestInterruptedReplay(t *testing.T) {
	p, _ := newTestPublisher(t, new(memoryStream))
	p.pods["s"], p.gap = newRecord("u", "web", "shop"), new(pleg.Event)
	p.pods["s"].apply(&pleg.Event{Type: pleg.ContainerStarted, ContainerID: "c"})
	if err := p.resume(t.Context()); err != nil || !p.pods["s"].Gone || p.pods["s"].uid != "u" || p.pods["s"].name != "web" || p.pods["s"].namespace != "shop" {
		t.Errorf("%v; the pod is %+v, want it gone until it comes", err, p.pods["s"])
	}
	p.at = pleg.Position{Epoch: "e", Seq: 7} // of the last event before the Gap
	asked, types := pleg.SubscribeOptions{}, eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest)
	p.o.Source = askedSource{p.o.Source, &asked}
	for gap, want := range map[*pleg.Event]pleg.SubscribeOptions{
		p.gap: {Name: "fleet", Statuses: true, Replay: true}, nil: {Name: "fleet", Statuses: true, After: p.at},
	} {
		want.Bookmarks, want.Filter.Types = true, types
		if p.gap = gap; p.publishOnce(t.Context()) == nil || !reflect.DeepEqual(asked, want) {
			t.Errorf("with the Gap %v it asks for %+v, want %+v", gap, asked, want)
		}
	}
}

// askedSource is a source that refuses its subscribers.
type askedSource struct {
	node.Pipeline
	asked *pleg.SubscribeOptions
}

func (s askedSource) Watch(_ context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	*s.asked = o
	return func(yield func(pleg.Event, error) bool) { yield(pleg.Event{}, errors.New("refused")) }
}

// Once a second an agent renews its lease if that is due. It looks at its messages every 20 s, and publishes old states again,
// unless others wait or a replay is under way.
func TestBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		stream := &memoryStream{err: gone}
		stream.info.Config.MaxAge = time.Minute
		p, _ := newTestPublisher(t, stream)
		p.bucket, p.revision, p.verified = &keptLease{}, 1, time.Now()
		p.fails(gone)
		p.queue = outgoingEvents(new(record), 1)
		time.Sleep(20*time.Second + 1)
		for _, replay := range []bool{false, true} {
			if replay {
				p.queue, p.gap = nil, new(pleg.Event)
			}
			if err := p.beat(t.Context()); err != nil || p.due(health{}) || p.fault.Load() == nil {
				t.Errorf("while a message waits: %v, due: %v, fault %v", err, p.due(health{}), p.fault.Load())
			}
		}
		p.gap = nil
		for i, want := range []error{gone, nil} { // the next look is 20 s later, and the lease names the fault no more
			if err := p.beat(t.Context()); !errors.Is(err, want) || p.fault.Load() != nil || (len(p.queue) == 1) != (want == nil) || p.revision != uint64(2+i) {
				t.Errorf("beat() = %v, want %v; the fault is %v, the lease has the revision %d, and %d states come again", err, want, p.fault.Load(), p.revision, len(p.queue))
			}
		}
		time.Sleep(20 * time.Second)
		stream.err, p.queue, p.own.stored = nil, nil, time.Now()
		p.pods["s"] = new(record)
		stream.add("s", nil)
		p.own.count, p.pods["s"].count = 1, 1
		stream.add(p.node, nil)
		if err := p.beat(t.Context()); err != nil || len(p.queue) != 1 || p.revision != 4 {
			t.Errorf("beat() = %v, and %d states come again after a look that finds all", err, len(p.queue))
		}
		p.bucket, p.renewed, p.queue = &keptLease{takes: requestTimeout + 1}, time.Time{}, nil
		p.beats.Reset(beatPeriod)
		if err := p.step(t.Context(), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("step() = %v without a lease", err)
		}
		bucket := new(keptLease)
		p.bucket, p.revision, p.renewed, p.verified = bucket, 7, time.Time{}, time.Now()
		p.o.Health = func(context.Context) (pleg.Status, error) { return pleg.Status{Healthy: true}, nil }
		for _, within := range []time.Duration{time.Second + 1, 2 * time.Second} { // once
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if err := p.run(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || p.revision != 8 || bucket.value.Verdict == nil {
				t.Errorf("run() = %v, and the lease has the revision %d with the verdict %v, want 8", err, p.revision, bucket.value.Verdict)
			}
		}
	})
}

// An agent that has never reached a server ends like any other.
func TestEndWithoutAServer(t *testing.T) {
	p, registry := newTestPublisher(t, new(memoryStream))
	p.pods = nil
	ctx, cancel := context.WithCancel(t.Context())
	if cancel(); p.Run(ctx) != nil {
		t.Error("the end of its context is an error")
	}
	bucket := new(keptLease)
	p.bucket, p.revision = bucket, 7
	if p.Run(ctx) == nil || bucket.value.Ended {
		t.Errorf("it runs a second time, or ends the first run: the lease is %+v", bucket.value)
	}
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("its metrics are left behind: %v, %v", families, err)
	}
}

// A publisher knows its place, its domain and its own name.
func TestNamesOfAPublisher(t *testing.T) {
	p, _ := newTestPublisher(t, new(memoryStream))
	o := p.o
	o.Domain, o.Registerer = "hub", nil
	hub, err := NewPublisher(o)
	kit.Must(t, err)
	o.Domain = ""
	p, err = NewPublisher(o)
	kit.Must(t, err)
	if want := (backoff.Backoff{Min: time.Second / 4, Max: 5 * time.Second}); p.loop.Backoff != want {
		t.Errorf("it tries again after %+v, want %+v", p.loop.Backoff, want)
	}
	if of, none := hub.js.Options().Domain, p.js.Options().Domain; of != "hub" || none != "" {
		t.Errorf("the domains are %q and %q, want hub and none", of, none)
	}
	host, _ := os.Hostname()
	agent := regexp.MustCompile(`^` + regexp.QuoteMeta(fmt.Sprintf("%s/%d/", host, os.Getpid())) + `[0-9a-f]{8}$`)
	if !agent.MatchString(p.agent) || p.agent == hub.agent || p.key != "c.n" || p.node != "pleg.v2.c.n.=" || p.all != "pleg.v2.c.n.>" || p.source != "/clusters/c/nodes/n" || p.log.Enabled(t.Context(), slog.LevelError) {
		t.Errorf("the agent %s, or %s, publishes as %s, %s, %s and %s, or logs without a logger", p.agent, hub.agent, p.key, p.node, p.all, p.source)
	}
}

// An answer that has not come after a minute is forgotten, also one of another domain: the client keeps only some of them.
func TestAnswersThatNeverCome(t *testing.T) {
	for _, domain := range []string{"", "hub"} {
		kit.Bubble(t, domain, func(t *testing.T) {
			pipe, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
			kit.Must(t, err)
			p, err := NewPublisher(PublisherOptions{Conn: connectTo(t, 1<<20), Source: pipe, Domain: domain, Cluster: "c", Node: "n"})
			kit.Must(t, err)
			_, err = p.js.PublishMsgAsync(nats.NewMsg("s"))
			kit.Must(t, err)
			for after, want := range []int{1, 0} {
				time.Sleep(time.Minute - time.Second/2)
				if n := p.js.PublishAsyncPending(); n != want {
					t.Errorf("%d answers are awaited after about %d min, want %d", n, after+1, want)
				}
			}
		})
	}
}

// An agent begins with the pods of which the server has messages. Those of another node are not its own, and those that are gone
// are forgotten.
func TestAgentBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for replicas, warns := range map[int]int{1: 1, 2: 1, 3: 0} {
			s := newMemoryServer(t)
			p, _ := newTestPublisher(t, s.stream)
			var log kit.Log
			_, unread := decode([]byte("garbage"))
			p.o.Health = func(context.Context) (pleg.Status, error) { return pleg.Status{Healthy: true}, nil }
			p.js, p.o.Conn, p.store, p.o.Limits, p.log, p.o.Logger = s, s.conn, nil, Limits{Replicas: replicas}, log.Logger(), nil
			begin := func(want string, names ...pleg.PodUID) {
				t.Helper()
				before, _ := s.stream.GetLastMsgForSubject(t.Context(), "pleg.v2.c.n.>")
				p.queue, p.sent, p.parts, p.at, p.own = outgoingEvents(new(record), 1), 1, []part{{}}, pleg.Position{Epoch: "e"}, record{count: 3}
				kit.Must(t, p.begin(t.Context()))
				pods := make(map[string]*record)
				for _, name := range names {
					if pods[podSubject("c", "n", name)] = newRecord(name, string(name), "shop"); name == "garbage" || name == "odd" {
						pods[podSubject("c", "n", name)] = newRecord("", "", "")
					}
				}
				if !reflect.DeepEqual(p.pods, pods) || !reflect.DeepEqual(p.own, record{}) || p.queue != nil || p.sent != 0 || p.parts != nil || p.at != (pleg.Position{}) || p.last != cmp.Or(before, new(jetstream.RawStreamMsg)).Sequence || p.buffer != 50 {
					t.Errorf("it begins after %d with %v and %d messages, want %v", p.last, p.pods, len(p.queue), pods)
				}
				if *p.gap != (pleg.Event{Reason: want, ObservedAt: time.Now()}) || p.revision == 0 || p.Verdict == nil {
					t.Errorf("the Gap is %+v, want %s; the lease has the revision %d with the verdict %v", p.gap, want, p.revision, p.Verdict)
				}
				log.RequireLines(t, warns, `level=WARN msg="fewer than 3 servers keep the events: a power failure may lose some" replicas=`+fmt.Sprint(replicas))
			}
			begin(NodeNew)
			tell := func(k kind, node string, name pleg.PodUID, gone bool) {
				ev := pleg.Event{Epoch: "e", PodUID: name, PodName: string(name), PodNamespace: "shop"}
				r := newRecord(name, string(name), "shop")
				if !gone {
					r.apply(&pleg.Event{Type: pleg.ContainerStarted, ContainerID: "c"})
				}
				body, _ := r.encode(newMessage("", k, &ev), 1<<20)
				s.stream.add(podSubject("c", node, name), body)
			}
			s.stream.whole = true
			s.stream.add(p.node, encode(newMessage("", ofGone, new(pleg.Event))))
			tell(ofState, "m", "other", false)
			begin(NodeNew)
			tell(ofState, "n", "a", false)
			tell(ofEvent, "n", "b", false)
			tell(ofEvent, "n", "left", false)
			tell(ofEvent, "n", "left", true)
			s.stream.add(podSubject("c", "n", "garbage"), []byte("garbage"))
			s.stream.add(podSubject("c", "n", "odd"), encode(newMessage("", ofAgent, new(pleg.Event)))) // without a pod
			s.stream.add(p.node, encode(newMessage("", ofSynced, &pleg.Event{Epoch: "e"})))
			begin(pleg.OtherEpoch, "a", "b", "garbage", "odd")
			log.RequireLines(t, 1, `level=WARN msg="cannot read the last message of a pod" subject=pleg.v2.c.n.garbage err=`+strconv.Quote(unread.Error()))
			log.RequireLines(t, 1+warns, "level=WARN")
			for text, broken := range map[string]*error{"read message: mute": &s.stream.mute, "stream: err": &s.stream.err, "bucket pleg-agents: bucket": &s.bucket.err} {
				_, last, _ := strings.Cut(text, ": ")
				*broken, p.pods, p.bucket = errors.New(last), nil, nil
				if err := p.begin(t.Context()); fmt.Sprint(err) != text || p.pods != nil {
					t.Errorf("begin() = %v, with the pods %v; want %s", err, p.pods, text)
				}
				*broken = nil
			}
		}
	})
}

// A fault is told once it lasts, with the time of the first attempt that failed, whatever the later ones fail at.
func TestFaultLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, registry := newTestPublisher(t, new(memoryStream))
		began := time.Now()
		p.fails(errors.New("first"))
		if f := p.lastingFault(); f != nil {
			t.Errorf("%+v is told at once", f)
		}
		time.Sleep(4 * time.Second)
		p.fails(errors.New("second"))
		p.renewed = time.Now()
		if f := p.lastingFault(); f == nil || !f.Since.Equal(began) || f.Why != "second" || !p.due(health{}) {
			t.Errorf("the fault is %+v, and to be told at once: %v, want the second error since %v", f, p.due(health{}), began)
		}
		kit.RequireMetric(t, registry, renewPeriod.Seconds(), "pleg_fleet_failing_seconds")
		bucket := &keptLease{}
		p.bucket, p.revision = bucket, 1
		kit.Must(t, p.renew(t.Context(), health{}))
		p.fails(errors.New("second"))
		if f := bucket.value.Fault; f == nil || f.Why != "second" || p.due(health{}) {
			t.Errorf("the fault is told as %+v, and again: %v", f, p.due(health{}))
		}
		p.works(t.Context())
		kit.RequireMetric(t, registry, 0, "pleg_fleet_failing_seconds")
	})
}

// A pause takes as long as it should, and ends with its context. Meanwhile an agent with a lease renews it if it is due, unless it
// has no connection.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPublisher(t, new(memoryStream))
		for _, d := range []time.Duration{beatPeriod / 4, beatPeriod * 5 / 2} {
			began := time.Now()
			if err := p.pause(t.Context(), d); err != nil || time.Since(began) != d {
				t.Errorf("a pause of %v takes %v: %v", d, time.Since(began), err)
			}
		}
		for name, tt := range map[string]struct {
			revision  uint64
			connected bool
			due, want uint64
		}{"due": {1, true, 1, 2}, "not due": {1, true, 0, 1}, "without a lease": {0, true, 1, 0}, "without a connection": {1, false, 1, 1}} {
			if p.o.Conn = new(nats.Conn); tt.connected {
				p.o.Conn = connectTo(t, 100)
			}
			bucket := new(keptLease)
			p.bucket, p.revision, p.renewed = bucket, tt.revision, time.Now().Add(-time.Duration(tt.due)*4*time.Second)
			p.o.Health = func(context.Context) (pleg.Status, error) { return pleg.Status{Healthy: true}, nil }
			p.health = p.examine(t.Context())
			if kit.Must(t, p.pause(t.Context(), time.Second+1)); p.revision != tt.want || (bucket.value.Verdict != nil) != (tt.want == 2) {
				t.Errorf("a lease that is %s has the revision %d with the verdict %v, want %d", name, p.revision, bucket.value.Verdict, tt.want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), beatPeriod/2)
		defer cancel()
		if err := p.pause(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("pause() = %v at the end of its context", err)
		}
	})
}
