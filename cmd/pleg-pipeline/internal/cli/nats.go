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
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// natsFlags say how to connect to a NATS server. Except for the flag with the URL they are
// named as those of the nats command.
type natsFlags struct {
	// urlFlag is the name of the flag with the URL.
	urlFlag string
	// places are the flags that have no other use than with the URL.
	places  []string
	url     string
	cluster string
	options fleet.ConnectOptions
}

func (f *natsFlags) add(cmd *cobra.Command, urlFlag, usage string) {
	flags := cmd.Flags()
	f.urlFlag = urlFlag
	flags.StringVar(&f.url, urlFlag, "", usage)
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
		return needs(flags, "--"+f.urlFlag, append(f.places, "creds", "nkey", "tlscert", "tlskey", "tlsca")...)
	}
	switch {
	case strings.Contains(f.url, "@"):
		return fmt.Errorf("--%s must have no user, password or token: logs and process lists would show it; use --creds or --nkey", f.urlFlag)
	case f.cluster == "":
		return fmt.Errorf("--%s needs --cluster: the name of the cluster", f.urlFlag)
	case f.options.Credentials != "" && f.options.NKey != "":
		return errors.New("--creds cannot be combined with --nkey")
	case (f.options.TLSCert == "") != (f.options.TLSKey == ""):
		return errors.New("--tlscert and --tlskey need each other")
	}
	return nil
}

// needs returns an error if one of the flags is given although what it is for is not.
func needs(flags *pflag.FlagSet, what string, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) {
			return fmt.Errorf("--%s needs %s", name, what)
		}
	}
	return nil
}

func (f *natsFlags) connect(log *slog.Logger) (*nats.Conn, error) {
	o := f.options
	o.Name, o.Logger = Name, log
	return fleet.Connect(f.url, o)
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
			return nil, fmt.Errorf("--%s %s: %w", f.urlFlag, f.url, err)
		}
	}
	return conn, nil
}
