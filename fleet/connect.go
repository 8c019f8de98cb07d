package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// pingInterval is the time between two pings. The third ping without an answer ends the connection:
// a dead path is noticed after 15 s, and with the default of nats.go after six minutes.
const pingInterval = 5 * time.Second

// Connect returns a connection for [NewPublisher] and [Watch]. It does not wait for the server: the
// connection is made, and made again after a loss, until it is closed. Options, such as
// [nats.UserCredentials], go before the options that this package needs. A nil logger logs nothing.
func Connect(url string, log *slog.Logger, options ...nats.Option) (*nats.Conn, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	conn, err := nats.Connect(url, append(options,
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(time.Second),
		nats.ReconnectJitter(time.Second, time.Second),
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
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return conn, nil
}

// untilReconnected returns a context that ends when the connection is made again: messages in flight
// then get no answer, and the server may have lost some. The caller calls stop.
func untilReconnected(ctx context.Context, conn *nats.Conn) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	connected := conn.StatusChanged(nats.CONNECTED)
	go func() {
		for range connected { // until stop closes it
			cancel(errors.New("the connection was lost"))
		}
	}()
	return ctx, func() {
		conn.RemoveStatusListener(connected)
		cancel(nil)
	}
}
