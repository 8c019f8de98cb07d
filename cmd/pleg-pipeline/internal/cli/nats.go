package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// natsFlags say how to connect to a NATS server. Except for the flag with the URL they are
// named as those of the nats command.
type natsFlags struct {
	// urlFlag is the name of the flag with the URL.
	urlFlag string
	url     string
	cluster string
	options fleet.ConnectOptions
}

func (f *natsFlags) add(cmd *cobra.Command, urlFlag, usage string) {
	flags := cmd.Flags()
	f.urlFlag = urlFlag
	flags.StringVar(&f.url, urlFlag, "", usage)
	flags.StringVar(&f.cluster, "cluster", "", "the `NAME` of the cluster, for --"+urlFlag)
	flags.StringVar(&f.options.Credentials, "creds", "", "`FILE` with credentials for --"+urlFlag)
	flags.StringVar(&f.options.NKey, "nkey", "", "`FILE` with the seed of a key for --"+urlFlag)
	flags.StringVar(&f.options.TLSCert, "tlscert", "", "`FILE` with the certificate of this client for --"+urlFlag)
	flags.StringVar(&f.options.TLSKey, "tlskey", "", "`FILE` with the key of that certificate")
	flags.StringVar(&f.options.TLSCA, "tlsca", "", "`FILE` with the certificates that the server's must be signed by")
}

// given reports whether there is a URL.
func (f *natsFlags) given() bool { return f.url != "" }

func (f *natsFlags) validate(flags *pflag.FlagSet) error {
	if !f.given() {
		if flags.Changed(f.urlFlag) {
			return fmt.Errorf("--%s must not be empty: want a URL, such as nats://127.0.0.1:4222", f.urlFlag)
		}
		for _, name := range []string{"cluster", "node", "creds", "nkey", "tlscert", "tlskey", "tlsca"} {
			if flags.Changed(name) {
				return fmt.Errorf("--%s needs --%s", name, f.urlFlag)
			}
		}
		return nil
	}
	switch {
	case f.cluster == "":
		return fmt.Errorf("--%s needs --cluster: the name of the cluster", f.urlFlag)
	case f.options.Credentials != "" && f.options.NKey != "":
		return errors.New("--creds cannot be combined with --nkey")
	case (f.options.TLSCert == "") != (f.options.TLSKey == ""):
		return errors.New("--tlscert and --tlskey need each other")
	}
	return nil
}

func (f *natsFlags) connect(log *slog.Logger) (*nats.Conn, error) {
	o := f.options
	o.Name, o.Logger = Name, log
	return fleet.Connect(f.url, o)
}

// redacted returns the URL without a password.
func (f *natsFlags) redacted() string {
	u, err := url.Parse(f.url)
	if err != nil {
		return f.url
	}
	return u.Redacted()
}

// nodeVariable names the node if --node does not. A DaemonSet can set it to spec.nodeName.
const nodeVariable = "NODE_NAME"

// publishFlags make "run" publish its events.
type publishFlags struct {
	natsFlags

	node string
}

func (f *publishFlags) add(cmd *cobra.Command) {
	f.natsFlags.add(cmd, "nats", "publish the events and the state of every pod on the NATS server with this\n`URL`, such as nats://127.0.0.1:4222")
	cmd.Flags().StringVar(&f.node, "node", "", "the `NAME` of this node, for --nats; otherwise the environment variable\nNODE_NAME, otherwise the host name")
}

// part returns the part of "run" that publishes, and the connection to close after it.
func (f *publishFlags) part(ctx context.Context, p Process, pipe *pipeline.Pipeline, registry prometheus.Registerer, out console) (func(context.Context) error, *nats.Conn, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("--node is missing, and the host name is unknown: %w", err)
	}
	node := cmp.Or(f.node, p.Getenv(nodeVariable), host)
	conn, err := f.connect(out.log)
	if err != nil {
		return nil, nil, fmt.Errorf("--nats: %w", err)
	}
	publisher, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: conn, Source: fleet.FromPipeline(pipe), Cluster: f.cluster, Node: node, Logger: out.log, Registerer: registry,
	})
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("--nats: %w", err)
	}
	out.say(ctx, "publishing as node %s of cluster %s; to see the events: %s events --fleet %s --cluster %s", node, f.cluster, Name, f.redacted(), f.cluster)
	return publisher.Run, conn, nil
}

// connectTimeout is how long a command waits for a server that it needs at once.
const connectTimeout = 5 * time.Second

// connectNow returns a connection that has been made.
func (f *natsFlags) connectNow(ctx context.Context, log *slog.Logger) (*nats.Conn, error) {
	conn, err := f.connect(log)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", f.urlFlag, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for !conn.IsConnected() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			err := cmp.Or(conn.LastError(), errors.New("no server answers"))
			conn.Close()
			return nil, fmt.Errorf("--%s %s: %w", f.urlFlag, f.redacted(), err)
		}
	}
	return conn, nil
}
