package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// nodeVariable names the node if --node does not. A DaemonSet can set it to spec.nodeName.
const nodeVariable = "NODE_NAME"

// publishFlags make "run" send its events to other machines: to a NATS server, to an OTLP
// receiver, or both.
type publishFlags struct {
	nats     natsFlags
	endpoint string // of OTLP
	otlp     otlp.DialOptions
	node     string
}

// otlpFlags are named as the variables of OpenTelemetry.
var otlpFlags = []string{
	"otlp-protocol", "otlp-insecure", "otlp-headers-file", "otlp-certificate", "otlp-client-certificate", "otlp-client-key", "otlp-compression",
}

func (f *publishFlags) add(cmd *cobra.Command) {
	f.nats.add(cmd, "nats", "publish the events and the state of every pod on the NATS server with this\n`URL`, such as nats://127.0.0.1:4222")
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "otlp", "", "export the events as OpenTelemetry logs to this `ENDPOINT`: https://HOST:PORT or\nHOST:PORT with TLS, http://HOST:PORT without; over gRPC, or over HTTP if it has a\npath, such as /v1/logs")
	flags.StringVar(&f.otlp.Protocol, "otlp-protocol", "", "`grpc|http/protobuf`; otherwise what the endpoint of --otlp says")
	flags.BoolVar(&f.otlp.Insecure, "otlp-insecure", false, "connect to HOST:PORT without TLS, for --otlp")
	flags.StringVar(&f.otlp.HeadersFile, "otlp-headers-file", "", "`FILE` with a NAME=VALUE in each line: headers of every request of --otlp")
	flags.StringVar(&f.otlp.Certificate, "otlp-certificate", "", "`FILE` with the certificates that the receiver's must be signed by")
	flags.StringVar(&f.otlp.ClientCertificate, "otlp-client-certificate", "", "`FILE` with the certificate of this client for --otlp")
	flags.StringVar(&f.otlp.ClientKey, "otlp-client-key", "", "`FILE` with the key of that certificate")
	flags.StringVar(&f.otlp.Compression, "otlp-compression", "none", "compress the requests of --otlp: `gzip|none`")
	tuning(cmd, "otlp-protocol", "otlp-compression")
	flags.StringVar(&f.nats.cluster, "cluster", "", "the `NAME` of the cluster, for --nats and --otlp")
	flags.StringVar(&f.node, "node", "", "the `NAME` of this node, for --nats and --otlp; otherwise the environment\nvariable NODE_NAME, otherwise the host name")
}

// given reports whether the events are sent anywhere.
func (f *publishFlags) given() bool { return f.nats.given() || f.endpoint != "" }

func (f *publishFlags) validate(flags *pflag.FlagSet, s *settings) error {
	if err := cmp.Or(f.nats.validate(flags), f.validateOTLP(flags, s)); err != nil {
		return err
	}
	if f.given() {
		return nil
	}
	return needs(flags, "--nats or --otlp", "cluster", "node")
}

func (f *publishFlags) validateOTLP(flags *pflag.FlagSet, s *settings) error {
	if f.endpoint != "" {
		conn, err := f.dialOTLP()
		if err != nil {
			return fmt.Errorf("--otlp (%s): %w", s.sources["otlp"], err)
		}
		return conn.Close() // it has not connected
	}
	if flags.Changed("otlp") {
		return errors.New("--otlp must not be empty: want an endpoint, such as http://127.0.0.1:4317")
	}
	for _, name := range otlpFlags {
		// A variable of OpenTelemetry may be there for other programs.
		if err := needs(flags, "--otlp", name); err != nil && !strings.HasPrefix(s.sources[name], otelPrefix) {
			return err
		}
	}
	return nil
}

// dialOTLP does not connect yet.
func (f *publishFlags) dialOTLP() (otlp.Conn, error) {
	o := f.otlp
	o.UserAgent = Name + "/" + programVersion()
	return otlp.Dial(f.endpoint, o)
}

func (f *publishFlags) nodeName(p Process) (string, error) {
	if node := cmp.Or(f.node, p.Getenv(nodeVariable)); node != "" {
		return node, nil
	}
	return os.Hostname()
}

// addTo adds what is to run to a daemon, which closes it, also after an error.
func (f *publishFlags) addTo(ctx context.Context, d *daemon, registry prometheus.Registerer) error {
	if !f.given() {
		return nil
	}
	node, err := f.nodeName(d.command.process)
	if err != nil {
		return fmt.Errorf("--node is missing, and the host name is unknown: %w", err)
	}
	if f.nats.given() {
		if err := f.addNATS(ctx, d, node, registry); err != nil {
			return err
		}
	}
	if f.endpoint == "" {
		return nil
	}
	if err := f.addOTLP(ctx, d, node, registry); err != nil {
		return fmt.Errorf("--otlp: %w", err)
	}
	return nil
}

func (f *publishFlags) addNATS(ctx context.Context, d *daemon, node string, registry prometheus.Registerer) error {
	conn, err := f.nats.connect(d.out.log)
	if err != nil {
		return err
	}
	d.close = append(d.close, conn.Close)
	publisher, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: conn, Source: fleet.From(d.pipe), Cluster: f.nats.cluster, Node: node, Logger: d.out.log, Registerer: registry,
		Health: func(context.Context) (pleg.Status, error) { return d.pipe.Status(), nil },
	})
	if err != nil {
		return fmt.Errorf("--nats: %w", err)
	}
	d.parts = append(d.parts, publisher.Run)
	d.states = append(d.states, httpserver.Part{Name: "nats", State: func() string { return publishingState(publisher.Status()) }})
	d.out.say(ctx, "publishing as node %s of cluster %s; to see the events: %s events --fleet %s --cluster %s", node, f.nats.cluster, Name, f.nats.url, f.nats.cluster)
	return nil
}

// publishingState says how publishing goes.
func publishingState(s fleet.PublisherStatus) string {
	text := fmt.Sprintf("nothing acknowledged for %v", time.Since(s.LastAck).Round(time.Second))
	if s.Err != nil {
		text = fmt.Sprintf("cannot publish: %v; %s", s.Err, text)
	}
	if s.Cut > 0 {
		text += fmt.Sprintf("; %d events and states were too large and are published in part", s.Cut)
	}
	return text
}

func (f *publishFlags) addOTLP(ctx context.Context, d *daemon, node string, registry prometheus.Registerer) error {
	conn, err := f.dialOTLP()
	if err != nil {
		return err
	}
	d.close = append(d.close, func() { _ = conn.Close() })
	exporter, err := otlp.NewExporter(otlp.ExporterOptions{
		Conn: conn, Source: otlp.From(d.pipe), Cluster: f.nats.cluster, Node: node,
		ServiceVersion: programVersion(), Logger: d.out.log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	d.parts = append(d.parts, exporter.Run)
	d.out.say(ctx, "exporting OpenTelemetry logs as node %s to %s", node, f.endpoint)
	if f.otlp.HeadersFile != "" && readableOnTheWay(f.endpoint, f.otlp.Insecure) {
		d.out.say(ctx, "warning: the headers of --otlp-headers-file are sent without encryption: use https://")
	}
	return nil
}

// readableOnTheWay reports whether others can read what is sent to an endpoint of OTLP.
func readableOnTheWay(endpoint string, withoutTLS bool) bool {
	if !strings.Contains(endpoint, "://") {
		if !withoutTLS {
			return false
		}
		endpoint = "http://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme == "https" {
		return err != nil
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
