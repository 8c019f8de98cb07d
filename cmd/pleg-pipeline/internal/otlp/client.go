package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// NewClient returns the exporter of OpenTelemetry for an endpoint, which does not connect yet.
//
// The endpoint is http://HOST:PORT (without TLS), https://HOST:PORT, or HOST:PORT: then
// OTEL_EXPORTER_OTLP_INSECURE says whether to use TLS. OTEL_EXPORTER_OTLP_PROTOCOL is the protocol;
// without it, the protocol is HTTP if the endpoint contains a path or the port 4318, otherwise gRPC.
// Headers, certificates, compression and time-out come from the variables OTEL_EXPORTER_OTLP_…;
// OpenTelemetry reports a bad variable to its error handler and ignores it.
func NewClient(ctx context.Context, endpoint string) (sdklog.Exporter, error) {
	to, overHTTP, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	retries := otlploghttp.RetryConfig{Enabled: true, InitialInterval: minBackoff, MaxInterval: maxBackoff}
	if overHTTP {
		return otlploghttp.New(ctx, otlploghttp.WithEndpointURL(to.String()), otlploghttp.WithRetry(retries))
	}
	return otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(to.String()), otlploggrpc.WithRetry(otlploggrpc.RetryConfig(retries)), otlploggrpc.WithDialOption(
		// No request takes that long. The option makes grpc set TCP_USER_TIMEOUT, without which a
		// connection through a dead network lasts a quarter of an hour.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: 20 * time.Second}),
	))
}

// ParseEndpoint returns the URL of an endpoint of [NewClient], and whether the protocol is HTTP.
func ParseEndpoint(endpoint string) (to *url.URL, overHTTP bool, err error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "//" + endpoint
	}
	to, err = url.Parse(endpoint)
	if err != nil || to.Hostname() == "" || !slices.Contains([]string{"", "http", "https"}, to.Scheme) || to.User != nil || to.RawQuery != "" {
		return nil, false, errors.New("bad endpoint: want HOST:PORT or a URL of http or https, such as http://127.0.0.1:4317; headers belong into OTEL_EXPORTER_OTLP_HEADERS")
	}
	hasPath := strings.Trim(to.Path, "/") != ""
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); {
	case protocol == "":
		overHTTP = hasPath || to.Port() == "4318"
	case protocol == "http/protobuf":
		overHTTP = true
	case protocol != "grpc":
		return nil, false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: want grpc or http/protobuf", protocol)
	}
	switch {
	case overHTTP && !hasPath:
		to.Path = "/v1/logs"
	case !overHTTP && (hasPath || to.Port() == ""):
		return nil, false, fmt.Errorf("bad endpoint: want a port and no path for gRPC, such as %s:4317", to.Hostname())
	}
	return to, overHTTP, nil
}
