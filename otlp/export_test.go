package otlp

import (
	"net/http"
	"net/url"
	"strings"
)

// For tests of this package.
var (
	NewRecord   = newRecord
	IsPermanent = isPermanent
	AskedFor    = askedFor
)

// MaxText is the length to which a text is cut, MaxBatch the largest number of records in a request.
const (
	MaxText  = maxText
	MaxBatch = maxBatch
)

// WithMaxBatch returns options with other limits of a request; 0 is the limit of the program.
func (o ExporterOptions) WithMaxBatch(records, bytes int) ExporterOptions {
	o.maxBatch, o.maxBatchBytes = records, bytes
	return o
}

// ParseEndpoint returns where requests go and how, in a line.
func ParseEndpoint(endpoint string, o DialOptions) (string, error) {
	to, protocol, err := o.parseEndpoint(endpoint)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(protocol, "/protobuf") + " " + to.String(), nil
}

// NewHTTPConn returns a connection over HTTP.
func NewHTTPConn(transport http.RoundTripper) Conn {
	return newHTTPConn(&url.URL{Scheme: "http", Host: "receiver", Path: defaultPath}, DialOptions{}, transport)
}
