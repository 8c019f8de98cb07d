package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// natsFlags say how to connect to a NATS server. Except for the flag with the URL they have the
// names that the nats command gives them.
type natsFlags struct {
	// urlFlag is the name of the flag with the URL, others are the flags that need it.
	urlFlag string
	others  []string
	url     string
	cluster string
	// The files that the flags name.
	creds, nkey, tlsCert, tlsKey, tlsCA string
}

func (f *natsFlags) add(cmd *cobra.Command, urlFlag, usage string) {
	f.urlFlag, f.others = urlFlag, []string{"creds", "nkey", "tlscert", "tlskey", "tlsca"}
	flags := cmd.Flags()
	flags.StringVar(&f.url, urlFlag, "", usage)
	flags.StringVar(&f.creds, "creds", "", "`FILE` with credentials for --"+urlFlag)
	flags.StringVar(&f.nkey, "nkey", "", "`FILE` with the seed of a key for --"+urlFlag)
	flags.StringVar(&f.tlsCert, "tlscert", "", "`FILE` with the certificate of this client for --"+urlFlag)
	flags.StringVar(&f.tlsKey, "tlskey", "", "`FILE` with the key of that certificate")
	flags.StringVar(&f.tlsCA, "tlsca", "", "`FILE` with the certificates that the server's must be signed by")
}

func (f *natsFlags) given() bool { return f.url != "" }

func (f *natsFlags) validate(flags *pflag.FlagSet) error {
	switch {
	case !f.given() && flags.Changed(f.urlFlag):
		return fmt.Errorf("--%s must not be empty: want a URL, such as nats://127.0.0.1:4222", f.urlFlag)
	case !f.given():
		return needs(flags, "--"+f.urlFlag, f.others...)
	case strings.Contains(f.url, "@"):
		return fmt.Errorf("--%s must have no user, password or token: logs and process lists would show it; use --creds or --nkey", f.urlFlag)
	case f.cluster == "":
		return fmt.Errorf("--%s needs --cluster: the name of the cluster", f.urlFlag)
	case f.creds != "" && f.nkey != "":
		return errors.New("--creds cannot be combined with --nkey")
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return errors.New("--tlscert and --tlskey need each other")
	}
	return nil
}

func (f *natsFlags) connect(log *slog.Logger) (*nats.Conn, error) {
	options := []nats.Option{nats.Name(Name)}
	if f.creds != "" {
		options = append(options, nats.UserCredentials(f.creds))
	}
	if f.nkey != "" {
		key, err := nats.NkeyOptionFromSeed(f.nkey)
		if err != nil {
			return nil, fmt.Errorf("--nkey: %w", err)
		}
		options = append(options, key)
	}
	if f.tlsCert != "" {
		options = append(options, nats.ClientCert(f.tlsCert, f.tlsKey))
	}
	if f.tlsCA != "" {
		options = append(options, nats.RootCAs(f.tlsCA))
	}
	conn, err := fleet.Connect(f.url, log, options...)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", f.urlFlag, err)
	}
	return conn, nil
}

// use calls fn with the server. If now is set, the server must answer first.
func (f *natsFlags) use(ctx context.Context, out console, now bool, fn func(context.Context, jetstream.JetStream) error) error {
	conn, err := f.connect(out.log)
	if err != nil {
		return err
	}
	defer conn.Close()
	if now {
		if err := f.await(ctx, conn); err != nil {
			return interrupted(ctx, out, err)
		}
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("--%s: %w", f.urlFlag, err)
	}
	return fn(ctx, js)
}

// connectTimeout is how long a command waits for a server that it needs at once.
const connectTimeout = 5 * time.Second

func (f *natsFlags) await(ctx context.Context, conn *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for !conn.IsConnected() {
		if backoff.Wait(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("--%s %s: %w", f.urlFlag, f.url, cmp.Or(conn.LastError(), errors.New("no server answers")))
		}
	}
	return nil
}
