package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/position"
)

const (
	// keepalive is how often something is sent, so that proxies keep the
	// connection and a client that is gone is found out.
	keepalive = 15 * time.Second
	// maxBatch bounds what is written at once, in bytes.
	maxBatch = 64 << 10
)

// events serves one event stream to each client.
type events struct {
	pipe  *pipeline.Pipeline
	slots chan struct{} // holds one value for each stream
}

func (h *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := subscribeOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		unavailable(w, fmt.Sprintf("too many event streams: %d at a time", cap(h.slots)))
		return
	}
	sub, err := h.pipe.Subscribe(options)
	switch {
	case errors.Is(err, pipeline.ErrStopped):
		unavailable(w, err.Error())
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer sub.Close()
	s := stream{ResponseController: http.NewResponseController(w), w: w, epoch: h.pipe.Epoch()}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // a proxy that buffers would hold events back
	if r.Method == http.MethodHead {
		return
	}
	s.run(r, sub)
}

func unavailable(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, text, http.StatusServiceUnavailable)
}

// stream is one client's end.
type stream struct {
	*http.ResponseController
	w     http.ResponseWriter
	epoch string
	batch bytes.Buffer
}

// run ends when the client has left or does not read, or the pipeline has ended.
func (s *stream) run(r *http.Request, sub *pipeline.Subscription) {
	ticker := time.NewTicker(keepalive)
	defer ticker.Stop()
	s.batch.WriteString("retry: 1000\n\n")
	for s.send() == nil {
		select {
		case ev, ok := <-sub.Events():
			if !ok || !s.gather(ev, sub.Events()) {
				_ = s.send()
				return
			}
		case <-ticker.C:
			s.batch.WriteString(":\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

// gather takes what else is there, to be sent at once. It reports false if the
// subscription has ended.
func (s *stream) gather(ev pipeline.Event, more <-chan pipeline.Event) bool {
	for {
		s.add(ev)
		if s.batch.Len() > maxBatch {
			return true
		}
		select {
		case next, ok := <-more:
			if !ok {
				return false
			}
			ev = next
		default:
			return true
		}
	}
}

// add writes one event. Without an id the client keeps the last one: behind a
// PodSync for missed events others may be due that have lower numbers, and a Gap
// comes before what it announces.
func (s *stream) add(ev pipeline.Event) {
	if ev.Missed == 0 && ev.Type != pipeline.Gap {
		fmt.Fprintf(&s.batch, "id: %s\n", position.Format(s.epoch, ev.Seq))
	}
	text, err := json.Marshal(ev)
	if err != nil {
		panic("httpserver: " + err.Error()) // an event has nothing that JSON cannot carry
	}
	fmt.Fprintf(&s.batch, "event: %s\ndata: %s\n\n", ev.Type, text)
}

func (s *stream) send() error {
	if err := s.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	defer s.batch.Reset()
	if _, err := s.w.Write(s.batch.Bytes()); err != nil {
		return err
	}
	return s.Flush()
}
