package httpserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxLookupWait is the longest wait of a lookup over HTTP.
const maxLookupWait = 10 * time.Second

// containers is the handler of /containers: which container and pod a container id
// (/containers/ID), a process (?pid=) or a cgroup (?cgroup=) belongs to.
type containers struct{ pipe *pipeline.Pipeline }

// ServeHTTP answers 404 if there is no such container, and 503 if it is not known yet.
func (c containers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	query, err := lookupQuery(r, q)
	if err := cmp.Or(q.finish(), err, query.Check()); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	found, err := c.pipe.Lookup(r.Context(), query)
	switch {
	case err == nil:
		writeJSON(w, view.NewLookup(found))
	case errors.Is(err, lookup.ErrNoContainer):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, pleg.ErrInvalidOption): // several ids begin so
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, lookup.ErrNotYet), errors.Is(err, pleg.ErrStopped):
		unavailable(w, err.Error())
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func lookupQuery(r *http.Request, q *query) (query lookup.Query, err error) {
	query.Container, query.WithPath = pleg.ContainerID(r.PathValue("id")), q.flag("path", false)
	for _, parameter := range []struct {
		name  string
		parse func(text string) error
	}{
		{"pid", func(text string) (err error) { query.PID, err = strconv.Atoi(text); return err }},
		{"cgroup", func(text string) (err error) { query.Cgroup, err = strconv.ParseUint(text, 10, 64); return err }},
		{"wait", func(text string) (err error) { query.Wait, err = time.ParseDuration(text); return err }},
	} {
		if text := q.text(parameter.name); text != "" && parameter.parse(text) != nil {
			err = fmt.Errorf("%s: %q is not valid", parameter.name, text)
		}
	}
	if query.Wait > maxLookupWait {
		err = fmt.Errorf("wait: %v is more than %v", query.Wait, maxLookupWait)
	}
	return query, err
}
