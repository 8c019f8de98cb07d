package otlp

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
)

// Protocols of [DialOptions].
const (
	ProtocolGRPC = "grpc"
	ProtocolHTTP = "http/protobuf"
)

// DialOptions configure [Dial]. The zero value sends no headers and trusts the
// certificates of the system.
type DialOptions struct {
	// Protocol is [ProtocolGRPC] or [ProtocolHTTP]. If empty, HTTP if the endpoint has a
	// path.
	Protocol string
	// Insecure connects without TLS, if the endpoint is HOST:PORT. A URL says by its
	// scheme what it wants.
	Insecure bool
	// HeadersFile has a header in each line, NAME=VALUE, which each request carries. It
	// is read for each request, so that a token may be replaced.
	HeadersFile string
	// Certificate is a file with the certificates that the receiver's must be signed
	// by. If empty, those of the system.
	Certificate string
	// ClientCertificate and ClientKey are files with the certificate of this client and
	// its key. They are read for each connection.
	ClientCertificate, ClientKey string
	// Compression compresses the requests: "gzip", which the receiver must accept, or
	// "none". If empty, none.
	Compression string
	// UserAgent names the program. If empty, "pleg-pipeline".
	UserAgent string
}

// defaultPath and defaultPort complete an endpoint. That of HTTP is a URL like any other if
// it has a scheme.
const defaultPath = "/v1/logs"

var defaultPort = map[string]string{ProtocolGRPC: "4317", ProtocolHTTP: "4318", "http": "80", "https": "443"}

// Conn is a connection to a receiver.
type Conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// Dial returns a connection for [NewExporter] to HOST:PORT, http://HOST:PORT (without
// TLS) or https://HOST:PORT, for OTLP over HTTP with a path, such as /v1/logs. It does not
// wait for the receiver: the connection is made, and made again after a loss, until it is
// closed. The error names a bad option or file.
func Dial(endpoint string, o DialOptions) (Conn, error) {
	conn, err := o.dial(endpoint)
	if err != nil {
		return nil, fmt.Errorf("dial OTLP receiver: %w", err)
	}
	return conn, nil
}

func (o DialOptions) dial(endpoint string) (Conn, error) {
	to, protocol, err := o.parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	config, err := o.tlsConfig(to.Scheme == "https")
	if err != nil {
		return nil, err
	}
	if _, err := readHeaders(o.HeadersFile); err != nil {
		return nil, fmt.Errorf("DialOptions.HeadersFile: %w", err)
	}
	switch o.Compression {
	case "", "none", gzip.Name:
	default:
		return nil, fmt.Errorf("DialOptions.Compression is %q: want gzip or none", o.Compression)
	}
	o.UserAgent = cmp.Or(o.UserAgent, "pleg-pipeline")
	if protocol == ProtocolHTTP {
		return newHTTPConn(to, o, newTransport(config)), nil
	}
	return o.dialGRPC(to.Host, config)
}

func (o DialOptions) dialGRPC(target string, config *tls.Config) (Conn, error) {
	transport := insecure.NewCredentials()
	if config != nil {
		transport = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(o.UserAgent),
		grpc.WithDisableServiceConfig(), // whoever answers for the name does not configure this
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: exportTimeout,
		}),
		// No request is that long. It makes grpc set TCP_USER_TIMEOUT, without which a
		// connection through a dead network lasts a quarter of an hour.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: 20 * time.Second}),
		grpc.WithPerRPCCredentials(headers{o.HeadersFile}),
	}
	if o.Compression == gzip.Name {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	return grpc.NewClient("dns:///"+target, options...)
}

// parseEndpoint returns the URL of an endpoint, and the protocol to use.
func (o DialOptions) parseEndpoint(endpoint string) (to *url.URL, protocol string, err error) {
	scheme, rest, hasScheme := strings.Cut(endpoint, "://")
	switch {
	case !hasScheme && o.Insecure:
		scheme, rest = "http", endpoint
	case !hasScheme:
		scheme, rest = "https", endpoint
	case scheme != "http" && scheme != "https":
		return nil, "", fmt.Errorf("endpoint %q has the scheme %q: want http, https or none", endpoint, scheme)
	}
	to, err = url.Parse(scheme + "://" + rest)
	if err != nil || to.Hostname() == "" || !hasScheme && strings.Contains(rest, "/") {
		return nil, "", fmt.Errorf("endpoint %q is not HOST:PORT, such as localhost:4317, nor such a URL with http or https", endpoint)
	}
	if to.User != nil || to.RawQuery != "" || to.Fragment != "" {
		return nil, "", fmt.Errorf("endpoint %q is more than HOST:PORT and a path", to.Redacted())
	}
	if protocol, err = o.protocol(to.Path); err != nil {
		return nil, "", err
	}
	port := defaultPort[protocol]
	if protocol == ProtocolHTTP {
		if to.Path == "" || to.Path == "/" {
			to.Path = defaultPath
		}
		if hasScheme {
			port = defaultPort[scheme]
		}
	}
	port = cmp.Or(to.Port(), port)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, "", fmt.Errorf("endpoint %q is not HOST:PORT: there is no such port", endpoint)
	}
	to.Host = net.JoinHostPort(to.Hostname(), port)
	return to, protocol, nil
}

func (o DialOptions) protocol(path string) (string, error) {
	hasPath := path != "" && path != "/"
	switch {
	case o.Protocol == ProtocolGRPC && hasPath:
		return "", fmt.Errorf("DialOptions.Protocol is %s, which has no path; the endpoint has %s", ProtocolGRPC, path)
	case o.Protocol == ProtocolHTTP, o.Protocol == "" && hasPath:
		return ProtocolHTTP, nil
	case o.Protocol == ProtocolGRPC, o.Protocol == "":
		return ProtocolGRPC, nil
	}
	return "", fmt.Errorf("DialOptions.Protocol is %q: want %s or %s", o.Protocol, ProtocolGRPC, ProtocolHTTP)
}
