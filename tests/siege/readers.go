package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// reader describes the events that one reader of all got. It keeps no events, so that there may be many
// readers. Its goroutine owns it until the siege is over.
type reader struct {
	Ended  int // streams that the daemon ended
	Events int
	Told   int // Gaps
	// Lost counts the events that are missing without a Gap, Repeated the events that came twice.
	Lost, Repeated uint64
	Position       pleg.Position // from where to resume
	Served         bool          // the reader got at least one event

	// last is the number up to which the reader got everything, if known.
	last  uint64
	known bool
}

// add checks the number of an event.
func (r *reader) add(ev pleg.Event) {
	r.Served = true
	if at, ok := ev.Position(); ok {
		r.Position = at
	}
	mark := ev.Type == pleg.Synced || ev.Type == pleg.Bookmark
	switch {
	case ev.Type == pleg.Gap:
		r.Told++
		r.known, r.last = false, 0
		return
	case ev.Replayed && (!r.known || ev.Seq <= r.last):
		return // later replayed events count: they are of pods that the daemon found when it started
	case !mark:
		r.Events++
	}
	if r.known {
		switch next := r.last + 1; {
		case mark && ev.Seq >= next: // a mark carries the number of the event before it
			r.Lost += ev.Seq - r.last
		case !mark && ev.Seq > next:
			r.Lost += ev.Seq - next
		case !mark && ev.Seq < next:
			r.Repeated++
		}
	}
	r.last, r.known = max(r.last, ev.Seq), true
}

// read follows all events with many readers until ctx ends. When their stream ends they resume.
func (s *siege) read(ctx context.Context) []*reader {
	var running sync.WaitGroup
	readers := make([]*reader, s.grpcReaders+s.sseReaders)
	for i := range readers {
		r := &reader{}
		readers[i] = r
		follow := r.serverSent
		if i < s.grpcReaders {
			follow = func(ctx context.Context) { r.watch(ctx, s.socket) }
		}
		running.Go(func() {
			for again := true; again; again = backoff.Wait(ctx, time.Second) == nil {
				follow(ctx)
				r.Ended++
			}
		})
	}
	running.Wait()
	return readers
}

// watch follows one Watch call to its end. Package client would ask each time for a replay,
// with which hundreds of readers would load the daemon.
func (r *reader) watch(ctx context.Context, socket string) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithReadBufferSize(4<<10))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	request := &plegv1.WatchRequest{Bookmarks: true, NetworkEvents: true}
	if r.Position.Epoch != "" {
		request.ResumeAfter = wire.FromPosition(r.Position)
	}
	stream, err := plegv1.NewPLEGClient(conn).Watch(ctx, request)
	for err == nil {
		var answer *plegv1.WatchResponse
		if answer, err = stream.Recv(); err == nil {
			r.add(wire.ToEvent(answer.GetEvent()))
		}
	}
}

// serverSent follows one answer of /events to its end.
func (r *reader) serverSent(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/events?bookmarks&network", http.NoBody)
	if err != nil {
		return
	}
	if r.Position.Epoch != "" {
		request.Header.Set("Last-Event-ID", fmt.Sprintf("%s:%d", r.Position.Epoch, r.Position.Seq))
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return
	}
	data := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			data = text
			continue
		}
		var ev pleg.Event // complete once an empty line follows
		if lines.Text() == "" && data != "" && json.Unmarshal([]byte(data), &ev) == nil {
			r.add(ev)
			data = ""
		}
	}
}
