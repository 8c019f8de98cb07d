package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
)

// event is what the siege checks of an event. It decodes nothing else: the readers share the
// processors with the daemon.
type event struct {
	seq, missed uint64
	kind        plegv1.EventType
	epoch       string
	replayed    bool
}

// reader is what one reader got. Its goroutine owns it until the siege is over.
type reader struct {
	seen        numbers
	first, last uint64 // it must have all events between these; first is 0 before
	epoch       string
	served      bool
	told        int // Gaps and missed events
	ended       int // streams that the daemon ended
}

func (r *reader) add(ev event) {
	r.epoch, r.served = ev.epoch, true
	switch {
	case ev.kind == plegv1.EventType_EVENT_TYPE_GAP, ev.kind == plegv1.EventType_EVENT_TYPE_POD_SYNC && ev.missed > 0:
		r.told++
		r.seen, r.first = nil, 0
		return
	case ev.replayed:
		return
	case r.first == 0:
		r.first = max(1, ev.seq)
	}
	if ev.kind != plegv1.EventType_EVENT_TYPE_SYNCED && ev.kind != plegv1.EventType_EVENT_TYPE_BOOKMARK {
		r.seen.add(ev.seq)
	}
	r.last = max(r.last, ev.seq)
}

// numbers is a set of numbers as bits.
type numbers []uint64

func (n *numbers) add(i uint64) {
	for uint64(len(*n)) <= i/64 {
		*n = append(*n, 0)
	}
	(*n)[i/64] |= 1 << (i % 64)
}

func (n numbers) has(i uint64) bool { return i/64 < uint64(len(n)) && n[i/64]&(1<<(i%64)) != 0 }

func startReaders(ctx context.Context, running *sync.WaitGroup, socket string, grpcReaders, sseReaders int) []*reader {
	readers := make([]*reader, grpcReaders+sseReaders)
	for i := range readers {
		r := &reader{}
		readers[i] = r
		follow := r.serverSent
		if i < grpcReaders {
			follow = func(ctx context.Context) { r.watch(ctx, socket) }
		}
		running.Go(func() {
			for ctx.Err() == nil { // resume as package client and browsers do
				follow(ctx)
				r.ended++
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	return readers
}

// eventCodec reads the fields of an event.
type eventCodec struct{ encoding.CodecV2 }

// Unmarshal implements [encoding.CodecV2].
func (eventCodec) Unmarshal(data mem.BufferSlice, into any) error {
	message := data.Materialize()
	_, _, n := protowire.ConsumeTag(message) // the only field of a WatchResponse
	text, m := protowire.ConsumeBytes(message[max(0, n):])
	if n < 0 || m < 0 {
		return fmt.Errorf("not a response: %x", message)
	}
	ev := into.(*event)
	*ev = event{}
	for len(text) > 0 {
		num, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, kind, text[n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		value, _ := protowire.ConsumeVarint(text[n:])
		switch num {
		case 1:
			ev.seq = value
		case 2:
			epoch, _ := protowire.ConsumeBytes(text[n:])
			ev.epoch = string(epoch)
		case 3:
			ev.kind = plegv1.EventType(value)
		case 13:
			ev.missed = value
		case 14:
			ev.replayed = value != 0
		}
		text = text[n+m:]
	}
	return nil
}

// watch follows one Watch call to its end.
func (r *reader) watch(ctx context.Context, socket string) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithReadBufferSize(4<<10))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, plegv1.PLEG_Watch_FullMethodName,
		grpc.ForceCodecV2(eventCodec{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		return
	}
	request := &plegv1.WatchRequest{Bookmarks: true}
	if r.epoch != "" {
		request.ResumeAfter = &plegv1.Position{Epoch: r.epoch, Seq: r.last}
	}
	if stream.SendMsg(request) != nil || stream.CloseSend() != nil {
		return
	}
	var ev event
	for stream.RecvMsg(&ev) == nil {
		r.add(ev)
	}
}

// serverSent follows one answer of /events to its end.
func (r *reader) serverSent(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/events?bookmarks", nil)
	if err != nil {
		return
	}
	if r.epoch != "" {
		request.Header.Set("Last-Event-ID", fmt.Sprintf("%s:%d", r.epoch, r.last))
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return
	}
	var ev event
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			epoch, seq, _ := strings.Cut(value, ":")
			ev.epoch = epoch
			ev.seq, _ = strconv.ParseUint(seq, 10, 64)
		case "event":
			ev.kind = kinds[value]
		case "data":
			ev.replayed = strings.Contains(value, `"replayed":true`)
			if strings.Contains(value, `"missed":`) {
				ev.missed = 1 // their number does not matter
			}
		case "": // an event without its end does not count
			if ev.kind != 0 {
				r.add(ev)
			}
			ev = event{epoch: r.epoch, seq: r.last}
		}
	}
}

// kinds are the types of events that the siege tells apart; all others are as good as a start.
var kinds = map[string]plegv1.EventType{
	"Gap": plegv1.EventType_EVENT_TYPE_GAP, "PodSync": plegv1.EventType_EVENT_TYPE_POD_SYNC,
	"Synced": plegv1.EventType_EVENT_TYPE_SYNCED, "Bookmark": plegv1.EventType_EVENT_TYPE_BOOKMARK,
	"ContainerStarted": plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED, "ContainerDied": plegv1.EventType_EVENT_TYPE_CONTAINER_DIED,
	"ContainerRemoved": plegv1.EventType_EVENT_TYPE_CONTAINER_REMOVED,
}

// judge compares each reader with what all readers together got: an event that one of them
// got was published, so that each reader got it, was told of a miss, or was not there yet.
func judge(readers []*reader) (served, told, ended, events, lost int) {
	var published numbers
	var last uint64
	for _, r := range readers {
		last = max(last, r.last)
		for i := range uint64(len(r.seen)) * 64 {
			if r.seen.has(i) {
				published.add(i)
				events++
			}
		}
	}
	for _, r := range readers {
		if r.served {
			served++
		}
		if r.told > 0 {
			told++
		}
		ended += max(0, r.ended-1) // the siege ends the last one
		for i := r.first + 1; r.first > 0 && i < r.last; i++ {
			if published.has(i) && !r.seen.has(i) {
				lost++
			}
		}
	}
	return served, told, ended, events, lost
}
