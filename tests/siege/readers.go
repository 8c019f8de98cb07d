package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// reader is what one reader got. Its goroutine owns it until the siege is over.
type reader struct {
	events map[uint64]bool // by their numbers
	first  uint64          // the position from which it must have all events; 0 before
	last   uint64
	told   int // Gaps and missed events
}

func (r *reader) add(ev pleg.Event) {
	switch {
	case ev.Type == pleg.Gap:
		r.told++
		r.events, r.first = make(map[uint64]bool), 0
	case ev.Type == pleg.PodSync && ev.Missed > 0:
		r.told++
		r.events, r.first = make(map[uint64]bool), 0
	case ev.Replayed:
	case ev.Type == pleg.Synced || ev.Type == pleg.Bookmark:
		if r.first == 0 {
			r.first = ev.Seq
		}
	default:
		if r.first == 0 {
			r.first = ev.Seq
		}
		r.events[ev.Seq] = true
		r.last = max(r.last, ev.Seq)
	}
}

func startReaders(ctx context.Context, running *sync.WaitGroup, socket string, grpcReaders, sseReaders int) []*reader {
	readers := make([]*reader, grpcReaders+sseReaders)
	for i := range readers {
		r := &reader{events: make(map[uint64]bool)}
		readers[i] = r
		if i < grpcReaders {
			running.Go(func() { r.watch(ctx, socket) })
		} else {
			running.Go(func() { r.serverSent(ctx) })
		}
	}
	return readers
}

func (r *reader) watch(ctx context.Context, socket string) {
	c, err := client.New(socket, client.Options{MaxBackoff: 30 * time.Second})
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	for ev, err := range c.Watch(ctx, client.WatchOptions{Bookmarks: true}) {
		if err != nil {
			return
		}
		r.add(ev)
	}
}

// serverSent follows /events and resumes as a browser does.
func (r *reader) serverSent(ctx context.Context) {
	id := ""
	for ctx.Err() == nil {
		id = r.stream(ctx, id)
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
	}
}

// stream reads one answer to its end and returns the id of its last event.
func (r *reader) stream(ctx context.Context, id string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/events", nil)
	if err != nil {
		return id
	}
	if id != "" {
		request.Header.Set("Last-Event-ID", id)
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return id
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return id
	}
	lines := bufio.NewScanner(resp.Body)
	var next, data string
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "id: "):
			next = line[len("id: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		case line == "" && data != "": // an event without its end does not count
			var ev pleg.Event
			if err := json.Unmarshal([]byte(data), &ev); err != nil {
				fmt.Println("not an event:", data)
			}
			r.add(ev)
			id, next, data = cmp.Or(next, id), "", ""
		}
	}
	return id
}

// judge compares each reader with what all readers together got: an event that one of them
// got was published, so that each reader got it, was told of a miss, or was not there yet.
func judge(readers []*reader) (served, told, events, lost int) {
	published := make(map[uint64]bool)
	for _, r := range readers {
		for seq := range r.events {
			published[seq] = true
		}
	}
	for _, r := range readers {
		if r.last > 0 {
			served++
		}
		if r.told > 0 {
			told++
		}
		events += len(r.events)
		for seq := range published {
			if seq > r.first && seq < r.last && !r.events[seq] {
				lost++
			}
		}
	}
	return served, told, events, lost
}
