package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each option acts: a watch connects, and finds its daemon gone after a while.
func TestOptionsAct(t *testing.T) {
	var log, notices, others kit.Log
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(others.Logger())
	var called time.Time
	dials, retries := 0, []time.Duration(nil)
	type row struct {
		options func(*fixture) client.Options
		require func(*testing.T)
	}
	rows := map[string]row{
		"Dial": {func(f *fixture) client.Options {
			return client.Options{Dial: func(ctx context.Context) (net.Conn, error) { dials++; return f.dial(ctx) }}
		}, func(t *testing.T) {
			if dials < 2 {
				t.Errorf("%d dials, want the first and one after the daemon has gone", dials)
			}
		}},
		"Logger": {func(f *fixture) client.Options { return client.Options{Dial: f.dial, Logger: log.Logger()} }, func(t *testing.T) {
			log.RequireLines(t, 1, `level=WARN msg="disconnected from the server" err="receive: the server is shutting down" retryIn=`)
		}},
		"Disconnected": {func(f *fixture) client.Options {
			return client.Options{Dial: f.dial, Logger: notices.Logger(), Disconnected: func(err error, in time.Duration) {
				if !errors.Is(err, pleg.ErrNoDaemon) {
					f.Errorf("disconnected: %v, want %v", err, pleg.ErrNoDaemon)
				}
				if notices.Count(" retryIn="+in.String()+"\n") == 0 {
					f.Errorf("it tries again in %v, and logged %s", in, &notices)
				}
				if n := len(retries); n > 0 && time.Since(called) != retries[n-1] {
					f.Errorf("it tried again after %v, not after %v", time.Since(called), retries[n-1])
				}
				called, retries = time.Now(), append(retries, in)
			}}
		}, func(t *testing.T) {
			if len(retries) == 0 || retries[len(retries)-1] <= 0 {
				t.Errorf("the times until the next attempt are %v", retries)
			}
		}},
	}
	kit.RequireRows(t, client.Options{}, rows)
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				c, err := client.New("", row.options(f))
				kit.Must(t, err)
				defer c.Close()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for range c.Watch(ctx, pleg.SubscribeOptions{}) { //nolint:errcheck // the events do not matter
					}
				}()
				synctest.Wait()
				f.endServer()
				time.Sleep(5 * time.Second)
				cancel()
				<-ended
				row.require(t)
				others.RequireLines(t, 0, "") // without a logger, nothing is logged
			})
		})
	}
}
