package httpserver

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// metrics returns the handler of /metrics.
func (o *Options) metrics() http.Handler {
	gatherer := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := o.Gatherer.Gather()
		if err != nil {
			o.Logger.Error("cannot gather metrics", "err", err)
		}
		return families, err
	})
	all := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug), // clients that have gone away
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
