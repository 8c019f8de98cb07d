package httpserver

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of connections and of pods that wait.
const (
	MaxBacklog     = maxBacklog
	MaxConnections = maxConnections
	MaxSpare       = maxSpare
)

// Limit is the handler that limits requests, without a wait.
func Limit(n int, what string, h http.Handler) http.Handler { return limit(n, 0, what, h) }

// Costliest is the hash that is compared for unknown users.
var Costliest = costliest

// NewMetrics is the handler of /metrics.
func NewMetrics(g prometheus.Gatherer) http.Handler {
	return limit(maxRequests, maxWait, "requests", newMetrics(g, slog.New(slog.DiscardHandler)))
}

// Limits of password checks.
const (
	MaxChecks     = maxChecks
	MaxHostChecks = maxHostChecks
)

// BeginCheck returns a function that begins the check of a wrong password of a host, and
// returns how to end it, and one that returns the number of hosts.
func BeginCheck() (begin func(host string) (end func(), err error), hosts func() int) {
	p := newPasswords()
	return func(host string) (func(), error) {
		_, err := p.startCheck("", [32]byte{}, host)
		return func() { p.finishCheck("", [32]byte{}, host, false) }, err
	}, func() int { return len(p.waiting) }
}

// NewShared is a handler that shares the answers to requests for a path.
func NewShared(h http.Handler) http.Handler {
	return newShared(func(r *http.Request) string { return r.URL.Path }, h)
}
