package cli

// LimitLog limits the lines of a log.
var LimitLog = newLogLimiter

// OnlyHung reports whether all pods that wait for their inspection hang.
var OnlyHung = onlyHung

// ReadableOnTheWay reports whether others can read what is sent to an endpoint of OTLP.
var ReadableOnTheWay = readableOnTheWay
