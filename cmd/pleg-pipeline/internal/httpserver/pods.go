package httpserver

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// pods is the handler of /pods. It answers from the cache and never calls the runtime.
type pods struct{ pipe *pipeline.Pipeline }

// podList is the answer of /pods.
type podList struct {
	// Epoch is the epoch of the pipeline; see /events.
	Epoch string `json:"epoch"`
	// Position is the position at which /events continues after this list; see Pipeline.Pods.
	Position string `json:"position"`
	// States are all states of a pod, the worst first.
	States []string   `json:"states"`
	Pods   []view.Pod `json:"pods"`
}

func (p pods) all(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	wanted, err := filter.New(q.podFilter())
	if err := cmp.Or(q.finish(), err); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	entries, position, err := p.pipe.Pods(r.Context())
	if err != nil { // not synced: an empty list would mean that all pods are gone
		unavailable(w, err.Error())
		return
	}
	status, _ := p.pipe.Status(r.Context()) // the error of a pipeline of this process is nil
	list := podList{Epoch: position.Epoch, Position: position.String(), States: view.States(), Pods: view.Pods(entries, status)}
	list.Pods = slices.DeleteFunc(list.Pods, func(pod view.Pod) bool { return !pod.Wanted(&wanted) })
	writeJSON(w, list)
}

func (p pods) one(w http.ResponseWriter, r *http.Request) {
	uid := pleg.PodUID(r.PathValue("uid"))
	status, _ := p.pipe.Status(r.Context())
	switch entries, _, err := p.pipe.Pods(r.Context(), uid); {
	case err != nil:
		unavailable(w, err.Error())
	case len(entries) == 0:
		http.Error(w, "no pod with this UID is known", http.StatusNotFound)
	default:
		writeJSON(w, view.Pods(entries, status)[0])
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	_ = json.NewEncoder(view.JSONWriter(w)).Encode(v) // only the connection of the client can fail
}
