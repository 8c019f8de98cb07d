package httpserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// pods is the handler of /pods. It answers from the cache and never calls the runtime.
type pods struct {
	pipe    *pipeline.Pipeline
	answers *answers[[]byte]
}

// podList is the answer of /pods.
type podList struct {
	// Epoch is the epoch of the pipeline; see /events.
	Epoch string     `json:"epoch"`
	Pods  []view.Pod `json:"pods"`
}

func (p pods) all(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	wanted, err := filter.New(q.podFilter())
	if err := cmp.Or(q.finish(), err); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Encode sorts the parameters, so that equal questions have equal names.
	body := p.answers.get(r.URL.Query().Encode(), func() []byte { return p.encode(&wanted) })
	writeHeader(w)
	_, _ = w.Write(body) // only the connection of the client can fail
}

func (p pods) encode(wanted *filter.Filter) []byte {
	list := podList{Epoch: p.pipe.Epoch(), Pods: view.Pods(p.pipe.Cache().List(), p.pipe.Status())}
	list.Pods = slices.DeleteFunc(list.Pods, func(pod view.Pod) bool {
		return !pod.Wanted(wanted)
	})
	var body bytes.Buffer
	encodeJSON(&body, list)
	return body.Bytes()
}

func (p pods) one(w http.ResponseWriter, r *http.Request) {
	uid := pleg.PodUID(r.PathValue("uid"))
	if e, ok := p.pipe.Cache().Entry(uid); ok {
		writeJSON(w, view.OnePod(e, p.pipe.Status()))
		return
	}
	http.Error(w, "no pod with this UID is known", http.StatusNotFound)
}

func writeJSON(w http.ResponseWriter, v any) {
	writeHeader(w)
	encodeJSON(w, v)
}

func writeHeader(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
}

func encodeJSON(w io.Writer, v any) {
	_ = json.NewEncoder(view.JSONWriter(w)).Encode(v) // only the connection of the client can fail
}
