package httpserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/position"
)

// query reads the parameters of a request. Unknown parameters are errors: a misspelled
// filter must not match everything.
type query struct {
	values url.Values
	known  map[string]bool
	err    error
}

func newQuery(r *http.Request) *query {
	q := &query{known: make(map[string]bool)}
	q.values, q.err = url.ParseQuery(r.URL.RawQuery)
	return q
}

func (q *query) text(name string) string {
	q.known[name] = true
	return q.values.Get(name)
}

// list accepts values with commas, repeated parameters, or both.
func (q *query) list(name string) []string {
	q.known[name] = true
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

// flag returns the value of a boolean parameter: true if it has no value, byDefault if
// it is missing.
func (q *query) flag(name string, byDefault bool) bool {
	q.known[name] = true
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

func (q *query) finish() error {
	if q.err != nil {
		return q.err
	}
	for name := range q.values {
		if !q.known[name] {
			return fmt.Errorf("unknown parameter %q: want %s", name, strings.Join(slices.Sorted(maps.Keys(q.known)), ", "))
		}
	}
	return nil
}

// maxName is the greatest length of a subscriber's name, in bytes.
const maxName = 100

// subscribeOptions returns the subscription that a request for events describes.
func subscribeOptions(r *http.Request) (pipeline.SubscribeOptions, error) {
	q := newQuery(r)
	o := pipeline.SubscribeOptions{
		Name:          q.text("name"),
		Replay:        q.flag("replay", false),
		Bookmarks:     q.flag("bookmarks", false),
		Namespaces:    q.list("namespace"),
		Selector:      q.text("selector"),
		OmitSandboxes: !q.flag("sandboxes", true),
		NetworkEvents: q.flag("network", false),
	}
	for _, t := range q.list("type") {
		o.Types = append(o.Types, pipeline.EventType(t))
	}
	for _, uid := range q.list("pod") {
		o.PodUIDs = append(o.PodUIDs, pipeline.PodUID(uid))
	}
	since := q.text("since")
	if err := q.finish(); err != nil {
		return o, err
	}
	if len(o.Name) > maxName {
		return o, fmt.Errorf("name has %d bytes, the limit is %d", len(o.Name), maxName)
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
		return o, nil
	}
	var err error
	o.After.Epoch, o.After.Seq, err = position.Parse(since)
	if err == nil && o.After == (pipeline.Position{}) {
		return o, errors.New("position 0 without an epoch means nothing: use replay")
	}
	return o, err
}
