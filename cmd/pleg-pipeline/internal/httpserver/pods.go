package httpserver

import (
	"encoding/json"
	"net/http"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
)

// pods is the handler of /pods. It answers from the cache and never calls the runtime.
type pods struct{ pipe *pipeline.Pipeline }

// podList is the answer of /pods.
type podList struct {
	// Epoch is the epoch of the pipeline; see /events.
	Epoch string        `json:"epoch"`
	Pods  []podview.Pod `json:"pods"`
}

func (p pods) all(w http.ResponseWriter, r *http.Request) {
	var filter podview.Filter
	q := newQuery(r)
	filter.Namespaces = q.list("namespace")
	selector := q.text("selector")
	if err := q.finish(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := filter.Select(selector); err != nil {
		http.Error(w, "selector: "+err.Error(), http.StatusBadRequest)
		return
	}
	answer := podList{Epoch: p.pipe.Epoch(), Pods: []podview.Pod{}}
	for _, pod := range podview.List(p.pipe.Cache()) {
		if filter.Wants(&pod) {
			answer.Pods = append(answer.Pods, pod)
		}
	}
	writeJSON(w, answer)
}

func (p pods) one(w http.ResponseWriter, r *http.Request) {
	uid := pipeline.PodUID(r.PathValue("uid"))
	for _, pod := range podview.List(p.pipe.Cache()) {
		if pod.UID == uid {
			writeJSON(w, pod)
			return
		}
	}
	http.Error(w, "no pod with this UID is known", http.StatusNotFound)
}

func writeJSON(w http.ResponseWriter, v any) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // only the connection of the client can fail
}
