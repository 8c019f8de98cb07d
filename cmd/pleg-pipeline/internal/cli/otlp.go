package cli

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
)

// otelPrefix begins the environment variables that OpenTelemetry defines.
const otelPrefix = "OTEL_"

// otelVariables are those of OpenTelemetry that set a flag, after the variable with our
// prefix. The endpoint for all signals is not among them: it may be there for other
// programs, and exporting has to be asked for.
var otelVariables = map[string][]string{
	"otlp":                    {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"},
	"otlp-insecure":           {"OTEL_EXPORTER_OTLP_LOGS_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"},
	"otlp-certificate":        {"OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"},
	"otlp-client-certificate": {"OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
	"otlp-client-key":         {"OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"},
	"otlp-compression":        {"OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"},
}

// otlpFlags say where and how to export. They are named as the variables of OpenTelemetry.
type otlpFlags struct {
	endpoint string
	options  otlp.DialOptions
}

func (f *otlpFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "otlp", "", "export the events as OpenTelemetry logs over gRPC to this `ENDPOINT`:\nhttps://HOST:PORT or HOST:PORT with TLS, http://HOST:PORT without")
	flags.BoolVar(&f.options.Insecure, "otlp-insecure", false, "connect to HOST:PORT without TLS, for --otlp")
	flags.StringVar(&f.options.HeadersFile, "otlp-headers-file", "", "`FILE` with a NAME=VALUE in each line: headers of every request of --otlp")
	flags.StringVar(&f.options.Certificate, "otlp-certificate", "", "`FILE` with the certificates that the receiver's must be signed by")
	flags.StringVar(&f.options.ClientCertificate, "otlp-client-certificate", "", "`FILE` with the certificate of this client for --otlp")
	flags.StringVar(&f.options.ClientKey, "otlp-client-key", "", "`FILE` with the key of that certificate")
	flags.StringVar(&f.options.Compression, "otlp-compression", "none", "compress the requests of --otlp: `gzip|none`")
}

// given reports whether there is an endpoint.
func (f *otlpFlags) given() bool { return f.endpoint != "" }

// headersInClear reports whether the headers, which may have a token, can be read on the way.
func (f *otlpFlags) headersInClear() bool {
	address, scheme := f.endpoint, ""
	if before, rest, ok := strings.Cut(address, "://"); ok {
		scheme, address = before, rest
	}
	if f.options.HeadersFile == "" || scheme == "https" || scheme == "" && !f.options.Insecure {
		return false
	}
	host, _, err := net.SplitHostPort(strings.TrimSuffix(address, "/"))
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

func (f *otlpFlags) validate(flags *pflag.FlagSet, s *settings) error {
	if !f.given() {
		if flags.Changed("otlp") {
			return errors.New("--otlp must not be empty: want an endpoint, such as http://127.0.0.1:4317")
		}
		for _, name := range []string{"otlp-insecure", "otlp-headers-file", "otlp-certificate", "otlp-client-certificate", "otlp-client-key", "otlp-compression"} {
			if strings.HasPrefix(s.sources[name], otelPrefix) {
				continue // it may be there for other programs
			}
			if err := needs(flags, "--otlp", name); err != nil {
				return err
			}
		}
		return nil
	}
	conn, err := f.dial()
	if err != nil {
		return fmt.Errorf("--otlp (%s): %w", s.sources["otlp"], err)
	}
	return conn.Close() // it has not connected
}

// dial does not connect yet.
func (f *otlpFlags) dial() (*grpc.ClientConn, error) {
	o := f.options
	o.UserAgent = Name + "/" + moduleVersion(buildInfo())
	return otlp.Dial(f.endpoint, o)
}
