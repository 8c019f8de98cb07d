package cli

// LimitLog limits the lines of a log.
var LimitLog = newLogLimiter
