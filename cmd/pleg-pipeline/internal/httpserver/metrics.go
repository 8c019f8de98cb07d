package httpserver

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics returns the handler of /metrics.
func (o *Options) metrics() http.Handler {
	all := promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(o.Logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isRebound(r) {
			http.Error(w, fmt.Sprintf("metrics are not served under the host name %q: use localhost or an IP address", r.Host), http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		all.ServeHTTP(w, r)
	})
}
