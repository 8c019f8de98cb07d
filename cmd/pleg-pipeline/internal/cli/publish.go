package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// nodeVariable names the node if --node does not. A DaemonSet can set it to spec.nodeName.
const nodeVariable = "NODE_NAME"

// publishFlags make "run" send its events to other machines: to a NATS server, to an OTLP
// receiver, or both.
type publishFlags struct {
	nats     natsFlags
	limits   fleet.Limits
	endpoint string // of OTLP
	node     string
}

func (f *publishFlags) add(cmd *cobra.Command) {
	f.nats.add(cmd, "nats", "publish the events and the state of every pod on the NATS server with this\n`URL`, such as nats://127.0.0.1:4222")
	f.nats.others = append(f.nats.others, "nats-max-bytes")
	flags := cmd.Flags()
	flags.Var((*sizeFlag)(&f.limits.MaxBytes), "nats-max-bytes", "the `SIZE` of the stream if this agent creates it, such as 50G; 0 for no limit")
	flags.StringVar(&f.endpoint, "otlp", "", "export the events as OpenTelemetry logs to this `ENDPOINT`: https://HOST:PORT or\nHOST:PORT with TLS, http://HOST:PORT without; over gRPC, or over HTTP if it has a\npath, such as /v1/logs, or the port 4318")
	flags.StringVar(&f.nats.cluster, "cluster", "", "the `NAME` of the cluster, for --nats and --otlp")
	flags.StringVar(&f.node, "node", "", "the `NAME` of this node, for --nats and --otlp; otherwise the environment\nvariable NODE_NAME, otherwise the host name")
}

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
	if f.endpoint == "" {
		if flags.Changed("otlp") {
			return errors.New("--otlp must not be empty: want an endpoint, such as http://127.0.0.1:4317")
		}
		return nil
	}
	if s.sources["otlp"] == otelEndpoint { // this endpoint is for all signals: each adds its own path
		if u, err := url.Parse(f.endpoint); err == nil && strings.Trim(u.Path, "/") != "" {
			f.endpoint = u.JoinPath("v1/logs").String()
		}
	}
	if _, _, err := otlp.ParseEndpoint(f.endpoint); err != nil {
		return fmt.Errorf("--otlp (%s): %w", s.sources["otlp"], err)
	}
	return nil
}

// otelError contains the last error that OpenTelemetry reported, such as a certificate that it
// cannot read: a process has only one handler of these errors.
var otelError lastError

type lastError struct{ atomic.Pointer[error] }

// Handle implements [otel.ErrorHandler].
func (e *lastError) Handle(err error) { e.Store(&err) }

// newOTLPClient does not connect yet. A bad variable of OpenTelemetry is an error.
func newOTLPClient(ctx context.Context, endpoint string) (sdklog.Exporter, error) {
	otel.SetErrorHandler(&otelError)
	otelError.Store(nil)
	client, err := otlp.NewClient(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	if reported := otelError.Load(); reported != nil {
		return nil, errors.Join(*reported, client.Shutdown(ctx))
	}
	return client, nil
}

func (f *publishFlags) nodeName(p Process) (string, error) {
	if node := cmp.Or(f.node, p.Getenv(nodeVariable)); node != "" {
		return node, nil
	}
	return os.Hostname()
}

// addTo adds the publishers to a daemon. The daemon closes them, also after an error.
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
	if off := otelOff(d.command.process.Getenv); off != "" {
		d.out.say(ctx, "%s is set: nothing is exported to %s", off, f.endpoint)
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
		Conn: conn, Source: d.pipe, Domain: f.nats.domain, Limits: f.limits, Cluster: f.nats.cluster, Node: node, Logger: d.out.log, Registerer: registry,
		Health: d.pipe.Status,
	})
	if err != nil {
		return fmt.Errorf("--nats: %w", err)
	}
	d.parts = append(d.parts, publisher.Run)
	d.states = append(d.states, httpserver.Part{Name: "nats", State: func() string {
		s := publisher.Status()
		text := progress("publish", "acknowledged", s.LastAck, s.Err)
		return text + partial(s.Cut)
	}})
	d.out.say(ctx, "publishing as node %s of cluster %s; to see the events: %s events --fleet %s --cluster %s", node, f.nats.cluster, Name, f.nats.url, f.nats.cluster)
	return nil
}

// partial says how many events and states were too large, after the progress.
func partial(cut uint64) string {
	switch cut {
	case 0:
		return ""
	case 1:
		return "; 1 event or state was too large and is published in part"
	}
	return fmt.Sprintf("; %d events and states were too large and are published in part", cut)
}

func progress(do, done string, last time.Time, err error) string {
	text := fmt.Sprintf("nothing %s for %v", done, time.Since(last).Round(time.Second))
	if err != nil {
		text = fmt.Sprintf("cannot %s: %v; %s", do, err, text)
	}
	return text
}

// otelOff returns the variable of OpenTelemetry that switches the export off, or "".
func otelOff(getenv func(string) string) string {
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"):
		return "OTEL_SDK_DISABLED=true"
	case getenv("OTEL_LOGS_EXPORTER") == "none":
		return "OTEL_LOGS_EXPORTER=none"
	}
	return ""
}

// resource contains the attributes that all records share. OpenTelemetry's variables name the
// service and add to it; the node and the cluster are those of the flags.
func (f *publishFlags) resource(node string) (*resource.Resource, error) {
	service := resource.NewSchemaless(attribute.String("service.name", Name), attribute.String("service.version", programVersion()))
	place := []attribute.KeyValue{attribute.String("k8s.node.name", node)}
	if f.nats.cluster != "" {
		place = append(place, attribute.String("k8s.cluster.name", f.nats.cluster))
	}
	merged, err := resource.Merge(service, resource.Environment())
	if err != nil {
		return nil, err
	}
	return resource.Merge(merged, resource.NewSchemaless(place...))
}

func (f *publishFlags) addOTLP(ctx context.Context, d *daemon, node string, registry prometheus.Registerer) error {
	client, err := newOTLPClient(ctx, f.endpoint)
	if err != nil {
		return err
	}
	d.close = append(d.close, func() { _ = client.Shutdown(context.WithoutCancel(ctx)) })
	ours, err := f.resource(node)
	if err != nil {
		return err
	}
	if reported := otelError.Load(); reported != nil { // the other attributes are in use
		d.out.log.WarnContext(ctx, "OTEL_RESOURCE_ATTRIBUTES is malformed", "err", *reported)
	}
	exporter, err := otlp.NewExporter(otlp.ExporterOptions{
		Client: client, Source: d.pipe, Resource: ours, Logger: d.out.log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	d.parts = append(d.parts, exporter.Run)
	d.states = append(d.states, httpserver.Part{Name: "otlp", State: func() string {
		last, err := exporter.Status()
		return progress("export", "accepted", last, err)
	}})
	d.out.say(ctx, "exporting OpenTelemetry logs as node %s to %s", node, f.endpoint)
	return nil
}
