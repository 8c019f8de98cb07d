package httpserver

import (
	"cmp"
	"embed"
	"net/http"
	"path"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// stages is the handler of /stages.
type stages struct{ *Options }

// nodeFigures is the answer of /stages.
type nodeFigures struct {
	Node    string `json:"node,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	view.Figures
}

func (s stages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := newQuery(r).finish(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := nodeFigures{Node: s.Node, Figures: view.ReadFigures(r.Context(), s.Pipeline, s.Gatherer)}
	if s.Runtime != nil {
		answer.Runtime = s.Runtime()
	}
	writeJSON(w, answer)
}

// pagePolicy lets the page use only its own files and the paths of this server. It
// makes the browser refuse text as HTML or as a script, whatever the page does with it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

//go:embed page
var pageFiles embed.FS

// servePage answers with the page, or with one of its files.
func servePage(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache, private")
	http.ServeFileFS(w, r, pageFiles, path.Join("page", cmp.Or(r.PathValue("file"), "index.html")))
}
