package httpserver

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newMetrics returns the handler of /metrics. One encoding serves all that ask at the same
// time: text, compressed or not.
func newMetrics(g prometheus.Gatherer, logger *slog.Logger) http.Handler {
	all := promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})
	encoding := func(r *http.Request) string {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			return "gzip"
		}
		return ""
	}
	answers := newShared(encoding, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.WithContext(r.Context()) // a copy
		asked.Header = http.Header{"Accept-Encoding": {encoding(r)}}
		all.ServeHTTP(w, asked)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isRebound(r) {
			writeRefusal(w, fmt.Errorf("metrics are not served under the host name %q: use localhost or an IP address", r.Host))
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		answers.ServeHTTP(w, r)
	})
}
