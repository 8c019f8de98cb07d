package monitor

import (
	"fmt"
	"net/http"
	"strings"
)

// check is one reason to be healthy or not.
type check struct {
	name string
	run  func() error
}

// checks is a health path: it is well if every check is.
type checks struct {
	path string
	all  []check
}

// ServeHTTP answers "ok"; with ?verbose, or if a check fails, with one line for
// each check.
func (c checks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var lines strings.Builder
	failed := false
	for _, check := range c.all {
		if err := check.run(); err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", check.name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", check.name)
	}
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-cache, private")
	switch {
	case failed:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "%s%s check failed\n", lines.String(), c.path)
	case r.URL.Query().Has("verbose"):
		fmt.Fprintf(w, "%s%s check passed\n", lines.String(), c.path)
	default:
		fmt.Fprint(w, "ok")
	}
}
