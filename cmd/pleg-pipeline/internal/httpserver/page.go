package httpserver

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// stages is the handler of /stages.
type stages struct {
	pipe     *pipeline.Pipeline
	gatherer prometheus.Gatherer
}

func (s stages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := newQuery(r).finish(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, view.ReadFigures(s.pipe, s.gatherer))
}

// pagePolicy lets the page use only its own files and the paths of this server. It
// makes the browser refuse text as HTML or as a script, whatever the page does with it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// maxPageRequests is the greatest number of requests for files of the page at the same
// time. A browser requests all of them at once.
const maxPageRequests = 64

//go:embed page
var pageFiles embed.FS

// page is the handler of the page and its files.
type page map[string]pageFile

type pageFile struct {
	text      []byte
	mediaType string
	tag       string // changes with the text, so that a browser keeps no old file
}

// mediaTypes has the type of each file name extension of the page. What package mime says
// depends on the machine.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// newPage returns the page at "/" and its other files below /page/.
func newPage() page {
	files, err := fs.Glob(pageFiles, "page/*")
	if err != nil {
		panic("httpserver: " + err.Error()) // the pattern is correct
	}
	p := make(page, len(files))
	for _, name := range files {
		text, err := pageFiles.ReadFile(name)
		if err != nil {
			panic("httpserver: " + err.Error()) // it was just listed
		}
		url := "/" + name
		if name == "page/index.html" {
			url = "/"
		}
		p[url] = pageFile{text, mediaTypes[path.Ext(name)], fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(text))[:16])}
	}
	return p
}

func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, ok := p[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Type", file.mediaType)
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache, private")
	header.Set("ETag", file.tag)
	if r.Header.Get("If-None-Match") == file.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(file.text) // only the connection of the client can fail
}
