package httpserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics is the handler of /metrics. One encoding serves all that ask at the same time.
type metrics struct {
	handler http.Handler
	answers *answers[*recorded]
}

func newMetrics(g prometheus.Gatherer, logger *slog.Logger) metrics {
	return metrics{answers: newAnswers[*recorded](), handler: promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})}
}

func (m metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isRebound(r) {
		writeRefusal(w, fmt.Errorf("metrics are not served under the host name %q: use localhost or an IP address", r.Host))
		return
	}
	// Text, in one of two forms: each costs an encoding.
	header := make(http.Header)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Accept-Encoding", "gzip")
	}
	request := r.Clone(context.WithoutCancel(r.Context())) // others wait for the answer too
	request.Header = header
	answer := m.answers.get(header.Get("Accept-Encoding"), func() *recorded {
		answer := &recorded{header: make(http.Header), code: http.StatusOK}
		m.handler.ServeHTTP(answer, request)
		return answer
	})
	maps.Copy(w.Header(), answer.header)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(answer.code)
	_, _ = w.Write(answer.body.Bytes()) // only the connection of the client can fail
}

// recorded is an answer that is sent several times.
type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter].
func (r *recorded) WriteHeader(code int) { r.code = code }

// Write implements [http.ResponseWriter].
func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }
