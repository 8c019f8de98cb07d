package httpserver

// CompleteAddress completes an address to listen on.
var CompleteAddress = completeAddress

// Limits of the rate of requests, and of pods that wait.
const (
	MaxBacklog = maxBacklog
	MaxRate    = maxRate
)

// Waiting says how many pods wait.
var Waiting = waiting

// LimitRate is the handler that limits the rate of requests.
var LimitRate = limitRate

// SubscribeOptions are the options in a request.
var SubscribeOptions = subscribeOptions
