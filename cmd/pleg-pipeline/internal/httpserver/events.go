package httpserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// keepalive is the longest time between two writes. It makes proxies keep the connection, and
// detects a client that has gone away.
const keepalive = 15 * time.Second

// events is the handler of /events.
type events struct{ *Options }

func (h events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, words, err := subscribeOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	sub, err := h.Pipeline.Subscribe(options)
	switch {
	case errors.Is(err, pleg.ErrStopped):
		unavailable(w, err.Error())
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer sub.Close()
	s := stream{ResponseController: http.NewResponseController(w), w: w, words: words, admitted: h.stillAdmits(r)}
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
	words bool // for people
	batch bytes.Buffer
	// admitted reports whether the client may still connect.
	admitted func() bool
}

// run ends when the client disconnects, stops reading or may not see pods any more, or the pipeline ends.
func (s *stream) run(r *http.Request, sub pleg.Subscription) {
	ticker := time.NewTicker(keepalive)
	defer ticker.Stop()
	s.batch.WriteString("retry: 1000\n\n")
	for s.send() == nil {
		select {
		case ev, ok := <-sub.Events():
			if !ok {
				return
			}
			s.add(ev)
			for range len(sub.Events()) { // one write for two events
				s.add(<-sub.Events())
			}
		case <-ticker.C:
			if !s.admitted() {
				return
			}
			s.batch.WriteString(":\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

// add adds an event to the batch. Only an event after which the client can resume gets an id;
// otherwise the client keeps the last id.
func (s *stream) add(ev pleg.Event) {
	if at, ok := ev.Position(); ok {
		fmt.Fprintf(&s.batch, "id: %v\n", at)
	}
	var message any = ev
	if s.words { // without the type as its name: a browser would have to know each name
		message = view.WordsOf(ev)
	} else {
		fmt.Fprintf(&s.batch, "event: %s\n", ev.Type)
	}
	text, err := json.Marshal(message)
	if err != nil {
		panic("httpserver: " + err.Error()) // an event consists of types that JSON can encode
	}
	fmt.Fprintf(&s.batch, "data: %s\n\n", view.EscapeJSON(text))
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

// query reads the parameters of a request. Unknown parameters are errors: a misspelled
// filter must not match everything.
type query struct {
	values url.Values
	names  map[string]bool
	err    error
}

func newQuery(r *http.Request) *query {
	q := &query{names: make(map[string]bool)}
	q.values, q.err = url.ParseQuery(r.URL.RawQuery)
	return q
}

func (q *query) text(name string) string {
	q.names[name] = true
	return q.values.Get(name)
}

// list accepts values with commas, repeated parameters, or both.
func (q *query) list(name string) []string {
	q.names[name] = true
	var all []string
	for _, v := range q.values[name] {
		for part := range strings.SplitSeq(v, ",") {
			if part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

// flag returns the value of a boolean parameter: true if it is without a value, byDefault if
// it is missing.
func (q *query) flag(name string, byDefault bool) bool {
	q.names[name] = true
	if !q.values.Has(name) {
		return byDefault
	}
	text := q.values.Get(name)
	if text == "" {
		return true
	}
	value, err := strconv.ParseBool(text)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("%s: %q is neither true nor false", name, text)
	}
	return value
}

// podFilter returns the filter that the parameters about pods describe.
func (q *query) podFilter() pleg.Filter {
	f := pleg.Filter{Namespaces: q.list("namespace"), Selector: q.text("selector")}
	for _, uid := range q.list("pod") {
		f.PodUIDs = append(f.PodUIDs, pleg.PodUID(uid))
	}
	return f
}

func (q *query) finish() error {
	if q.err != nil {
		return q.err
	}
	for name := range q.values {
		if !q.names[name] {
			return fmt.Errorf("unknown parameter %q: want %s", name, cmp.Or(strings.Join(slices.Sorted(maps.Keys(q.names)), ", "), "none"))
		}
	}
	return nil
}

// maxName is the greatest length of a subscriber's name, in bytes.
const maxName = 100

// subscribeOptions returns the subscription that a request for events describes, and whether
// the events come with words.
func subscribeOptions(r *http.Request) (o pleg.SubscribeOptions, words bool, err error) {
	q := newQuery(r)
	words = q.flag("words", false)
	o = pleg.SubscribeOptions{
		Name:      q.text("name"),
		Replay:    q.flag("replay", false),
		Bookmarks: q.flag("bookmarks", false),
		Filter:    q.podFilter(),
	}
	o.Filter.OmitSandboxes, o.Filter.NetworkEvents = !q.flag("sandboxes", true), q.flag("network", false)
	for _, t := range q.list("type") {
		o.Filter.Types = append(o.Filter.Types, pleg.EventType(t))
	}
	since := q.text("since")
	if err := q.finish(); err != nil {
		return o, words, err
	}
	if len(o.Name) > maxName {
		return o, words, fmt.Errorf("name has %d bytes, the limit is %d", len(o.Name), maxName)
	}
	if o.Name == "" {
		o.Name = "http"
	}
	// A browser that reconnects repeats its first request and adds this header,
	// which is newer than the parameters.
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		since, o.Replay = id, false
	}
	if since == "" {
		return o, words, nil
	}
	if age, err := time.ParseDuration(since); err == nil && age >= 0 {
		o.Since = time.Now().Add(-age)
		return o, words, nil
	}
	o.After, err = pleg.ParsePosition(since)
	return o, words, err
}
