package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// ConnectOptions configure [Connect]. The zero value connects without credentials.
type ConnectOptions struct {
	// Name identifies the connection in the server's reports.
	Name string
	// Credentials is a file with a user JWT and its key, and NKey a file with the
	// seed of a key. They exclude each other.
	Credentials, NKey string
	// TLSCert and TLSKey are files with the certificate of this client and its key;
	// TLSCA is a file with the certificates that the server's must be signed by. If
	// TLSCA is empty, those of the system.
	TLSCert, TLSKey, TLSCA string
	// Logger logs when the connection is lost and when it is back. If nil, nothing is
	// logged.
	Logger *slog.Logger
}

// Waits of a connection between two attempts.
const (
	reconnectWait   = time.Second
	reconnectJitter = time.Second
	// pingInterval is the time between two pings. The third one without an answer ends the
	// connection: a dead path is noticed after 15 s, and with the default of nats.go after six
	// minutes.
	pingInterval = 5 * time.Second
)

// Connect returns a connection for [NewPublisher] and [Watch]. It does not wait for the
// server: the connection is made, and made again after a loss, until it is closed. The
// error names a bad option or file.
func Connect(url string, o ConnectOptions) (*nats.Conn, error) {
	options, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	conn, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return conn, nil
}

func (o *ConnectOptions) complete() ([]nats.Option, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	options := []nats.Option{
		nats.Name(cmp.Or(o.Name, "pleg-pipeline")),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval),
		// Credentials may be repaired while the program runs.
		nats.IgnoreAuthErrorAbort(),
		// A message that the server does not get now is sent again by the publisher,
		// in its place. The connection must not send it a second time.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected from NATS", "err", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("connected to NATS", "server", c.ConnectedUrlRedacted()) }),
		// The publisher and the watch report errors themselves.
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Debug("NATS connection", "err", err) }),
	}
	switch {
	case o.Credentials != "" && o.NKey != "":
		return nil, errors.New("ConnectOptions.Credentials and NKey exclude each other")
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return nil, errors.New("ConnectOptions.TLSCert and TLSKey need each other")
	case o.Credentials != "":
		options = append(options, nats.UserCredentials(o.Credentials))
	case o.NKey != "":
		key, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("ConnectOptions.NKey: %w", err)
		}
		options = append(options, key)
	}
	if o.TLSCert != "" {
		options = append(options, nats.ClientCert(o.TLSCert, o.TLSKey))
	}
	if o.TLSCA != "" {
		options = append(options, nats.RootCAs(o.TLSCA))
	}
	return options, nil
}
