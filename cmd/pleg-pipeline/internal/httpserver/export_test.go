package httpserver

import "net/http"

// CompleteAddress completes an address to listen on.
var CompleteAddress = completeAddress

// Limits of connections, of the rate of requests, and of pods that wait.
const (
	MaxBacklog     = maxBacklog
	MaxConnections = maxConnections
	MaxRate        = maxRate
)

// Limit is the handler that limits requests, without a wait.
func Limit(n int, what string, h http.Handler) http.Handler { return limit(n, 0, what, h) }

// LimitRate is the handler that limits the rate of requests.
var LimitRate = limitRate

// SubscribeOptions is what a request asks for.
var SubscribeOptions = subscribeOptions
