package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/otlp"
)

// nodeVariable names the node if --node does not. A DaemonSet can set it to spec.nodeName.
const nodeVariable = "NODE_NAME"

// publishFlags make "run" send its events to other machines: to a NATS server, to an OTLP
// receiver, or both.
type publishFlags struct {
	nats natsFlags
	otlp otlpFlags
	node string
}

func (f *publishFlags) add(cmd *cobra.Command) {
	f.nats.add(cmd, "nats", "publish the events and the state of every pod on the NATS server with this\n`URL`, such as nats://127.0.0.1:4222")
	f.otlp.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.nats.cluster, "cluster", "", "the `NAME` of the cluster, for --nats and --otlp")
	flags.StringVar(&f.node, "node", "", "the `NAME` of this node, for --nats and --otlp; otherwise the environment\nvariable NODE_NAME, otherwise the host name")
}

// given reports whether the events are sent anywhere.
func (f *publishFlags) given() bool { return f.nats.given() || f.otlp.given() }

func (f *publishFlags) validate(flags *pflag.FlagSet, s *settings) error {
	if err := f.nats.validate(flags); err != nil {
		return err
	}
	if err := f.otlp.validate(flags, s); err != nil {
		return err
	}
	if f.given() {
		return nil
	}
	return needs(flags, "--nats or --otlp", "cluster", "node")
}

// publishers are the parts of "run" that send its events to other machines.
type publishers struct {
	parts []func(context.Context) error
	// states are their lines in /readyz?verbose.
	states []httpserver.Part
	// close closes the connections.
	close []func()
}

func (p *publishers) closeAll() {
	for _, f := range p.close {
		f()
	}
}

// publishers returns what is to run. The caller calls closeAll, also after an error.
func (f *publishFlags) publishers(ctx context.Context, p Process, pipe *pipeline.Pipeline, registry prometheus.Registerer, out console) (*publishers, error) {
	all := &publishers{}
	if !f.given() {
		return all, nil
	}
	node, err := f.nodeName(p)
	if err != nil {
		return all, err
	}
	if f.nats.given() {
		if err := f.addNATS(ctx, all, node, pipe, registry, out); err != nil {
			return all, fmt.Errorf("--nats: %w", err)
		}
	}
	if f.otlp.given() {
		if err := f.addOTLP(ctx, all, node, pipe, registry, out); err != nil {
			return all, fmt.Errorf("--otlp: %w", err)
		}
	}
	return all, nil
}

func (f *publishFlags) nodeName(p Process) (string, error) {
	if node := cmp.Or(f.node, p.Getenv(nodeVariable)); node != "" {
		return node, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("--node is missing, and the host name is unknown: %w", err)
	}
	return host, nil
}

func (f *publishFlags) addNATS(ctx context.Context, all *publishers, node string, pipe *pipeline.Pipeline, registry prometheus.Registerer, out console) error {
	conn, err := f.nats.connect(out.log)
	if err != nil {
		return err
	}
	all.close = append(all.close, conn.Close)
	publisher, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: conn, Source: fleet.FromPipeline(pipe), Cluster: f.nats.cluster, Node: node, Logger: out.log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	all.parts = append(all.parts, publisher.Run)
	all.states = append(all.states, httpserver.Part{Name: "nats", State: func() string { return publishingState(publisher.Status()) }})
	out.say(ctx, "publishing as node %s of cluster %s; to see the events: %s events --fleet %s --cluster %s", node, f.nats.cluster, Name, f.nats.url, f.nats.cluster)
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

func (f *publishFlags) addOTLP(ctx context.Context, all *publishers, node string, pipe *pipeline.Pipeline, registry prometheus.Registerer, out console) error {
	conn, err := f.otlp.dial()
	if err != nil {
		return err
	}
	all.close = append(all.close, func() { conn.Close() })
	exporter, err := otlp.NewExporter(otlp.ExporterOptions{
		Conn: conn, Source: otlp.FromPipeline(pipe), Cluster: f.nats.cluster, Node: node,
		ServiceVersion: moduleVersion(buildInfo()), Logger: out.log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	all.parts = append(all.parts, exporter.Run)
	out.say(ctx, "exporting OpenTelemetry logs as node %s to %s", node, f.otlp.endpoint)
	if f.otlp.headersInClear() {
		out.say(ctx, "warning: the headers of --otlp-headers-file are sent without encryption: use https://")
	}
	return nil
}
