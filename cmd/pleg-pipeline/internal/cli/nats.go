package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// natsFlags say how to connect to a NATS server. Their names are those of the nats command, except
// that of the flag with the URL.
type natsFlags struct {
	// urlFlag is the name of the flag with the URL, others are the flags that need it.
	urlFlag string
	others  []string
	url     string
	cluster string
	domain  string
	// The files that the flags name.
	context, creds, nkey, tlsCert, tlsKey, tlsCA string
}

func (f *natsFlags) add(cmd *cobra.Command, urlFlag, usage string) {
	f.urlFlag, f.others = urlFlag, []string{"nats-domain", "nats-context", "creds", "nkey", "tlscert", "tlskey", "tlsca"}
	flags := cmd.Flags()
	flags.StringVar(&f.url, urlFlag, "", usage)
	flags.StringVar(&f.domain, "nats-domain", "", "the JetStream `DOMAIN` of the stream, if --"+urlFlag+" is a leaf node of another one")
	flags.StringVar(&f.context, "nats-context", "", "`FILE` in which the nats command keeps a user and password, credentials and\ncertificates")
	flags.StringVar(&f.creds, "creds", "", "`FILE` with credentials for --"+urlFlag)
	flags.StringVar(&f.nkey, "nkey", "", "`FILE` with the seed of a key for --"+urlFlag)
	flags.StringVar(&f.tlsCert, "tlscert", "", "`FILE` with the certificate of this client for --"+urlFlag)
	flags.StringVar(&f.tlsKey, "tlskey", "", "`FILE` with the key of that certificate")
	flags.StringVar(&f.tlsCA, "tlsca", "", "`FILE` with the CA certificates that sign the server's certificate")
}

func (f *natsFlags) given() bool { return f.url != "" }

func (f *natsFlags) validate(flags *pflag.FlagSet) error {
	switch {
	case !f.given() && flags.Changed(f.urlFlag):
		return fmt.Errorf("--%s must not be empty: want a URL, such as nats://127.0.0.1:4222", f.urlFlag)
	case !f.given():
		return needs(flags, "--"+f.urlFlag, f.others...)
	case strings.Contains(f.url, "@"):
		return fmt.Errorf("--%s must have no user, password or token: logs and process lists would show it; use --nats-context, --creds or --nkey", f.urlFlag)
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
	if f.context != "" {
		login, err := f.readContext()
		if err != nil {
			return nil, fmt.Errorf("--nats-context: %w", err)
		}
		options = append(options, login)
	}
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

// readContext reads a context of the nats command: its files, unless a flag names others, and how to log in.
func (f *natsFlags) readContext() (nats.Option, error) {
	text, err := os.ReadFile(f.context)
	if err != nil {
		return nil, err
	}
	var c struct {
		User, Password, Token, Creds, NKey, Cert, Key, CA string

		Domain string `json:"jetstream_domain"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s is no context of the nats command: %w", f.context, err)
	}
	if f.creds != "" || f.nkey != "" {
		c.Creds, c.NKey = "", ""
	}
	for flag, value := range map[*string]string{
		&f.creds: c.Creds, &f.nkey: c.NKey, &f.tlsCert: c.Cert, &f.tlsKey: c.Key, &f.tlsCA: c.CA, &f.domain: c.Domain,
	} {
		*flag = cmp.Or(*flag, value)
	}
	if c.Token != "" {
		return nats.Token(c.Token), nil
	}
	return nats.UserInfo(c.User, c.Password), nil
}

func (f *natsFlags) jetStream(conn *nats.Conn) (jetstream.JetStream, error) {
	if f.domain == "" {
		return jetstream.New(conn)
	}
	return jetstream.NewWithDomain(conn, f.domain)
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
	js, err := f.jetStream(conn)
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

// sizeFlag is a number of bytes, with the units of the nats command: K, M, G and T are powers of 1024.
type sizeFlag int64

func (s *sizeFlag) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type implements [pflag.Value].
func (*sizeFlag) Type() string { return "size" }

// Set implements [pflag.Value].
func (s *sizeFlag) Set(text string) error {
	number := strings.TrimRight(text, "KMGTkmgtiBb")
	n, err := strconv.ParseInt(number, 10, 64)
	shift := map[string]int{"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40}
	unit := strings.ToUpper(text[len(number):])
	power, ok := shift[strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I")]
	if err != nil || !ok || n < 0 || n > math.MaxInt64>>power {
		return fmt.Errorf("%q is no size: want a number of bytes, or with a unit, such as 50M or 10GiB", text)
	}
	*s = sizeFlag(n << power)
	return nil
}
