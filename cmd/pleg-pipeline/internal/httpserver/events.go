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
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
)

const (
	// keepalive is the longest time between two writes. It makes proxies keep the
	// connection, and detects a client that has gone away.
	keepalive = 15 * time.Second
	// maxBatch is the size of a write, in bytes, above which no event is added.
	maxBatch = 64 << 10
)

// events is the handler of /events.
type events struct{ pipe *pipeline.Pipeline }

func (h *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := subscribeOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
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
	header.Set("X-Accel-Buffering", "no") // a proxy must not buffer events
	if r.Method == http.MethodHead {
		return
	}
	s.run(r, sub)
}

func unavailable(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, text, http.StatusServiceUnavailable)
}

// stream is the event stream of one client.
type stream struct {
	*http.ResponseController
	w     http.ResponseWriter
	epoch string
	batch bytes.Buffer
}

// run ends when the client disconnects or stops reading, or the pipeline ends.
func (s *stream) run(r *http.Request, sub *pipeline.Subscription) {
	ticker := time.NewTicker(keepalive)
	defer ticker.Stop()
	s.batch.WriteString("retry: 1000\n\n")
	for s.send() == nil {
		select {
		case ev, ok := <-sub.Events():
			if !ok || !s.addAll(ev, sub.Events()) {
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

// addAll adds ev and the events that are ready after it to the batch. It returns false
// if the subscription has ended.
func (s *stream) addAll(ev pipeline.Event, more <-chan pipeline.Event) bool {
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

// add adds an event to the batch. Only an event after which the client can resume gets
// an id; otherwise the client keeps the last one.
func (s *stream) add(ev pipeline.Event) {
	if wire.CanResumeAfter(ev) {
		fmt.Fprintf(&s.batch, "id: %s\n", position.Format(s.epoch, ev.Seq))
	}
	text, err := json.Marshal(ev)
	if err != nil {
		panic("httpserver: " + err.Error()) // an event has only types that JSON can encode
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
