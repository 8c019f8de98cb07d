package cli

import "github.com/pleg-pipeline/pleg-pipeline/otlp"

// LimitLog limits the lines of a log.
var LimitLog = newLogLimiter

// OnlyHung reports whether all pods that wait for their inspection hang.
var OnlyHung = onlyHung

// HeadersInClear reports whether headers for an endpoint can be read on the way.
func HeadersInClear(endpoint string, withoutTLS bool) bool {
	f := otlpFlags{endpoint: endpoint, options: otlp.DialOptions{HeadersFile: "file", Insecure: withoutTLS}}
	return f.headersInClear()
}
