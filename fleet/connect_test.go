package fleet_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A connection is made again until it is closed, also after a wrong password, whatever the options say. A dead path is noticed
// after 15 s. A message that cannot be sent now is an error: the publisher sends it again, and the connection must not
// send it too.
func TestConnection(t *testing.T) {
	conn, err := fleet.Connect("nats://127.0.0.1:1", nil, nats.MaxReconnects(1), nats.PingInterval(time.Hour))
	kit.Must(t, err)
	defer conn.Close()
	if o := conn.Opts; o.MaxReconnect >= 0 || !o.IgnoreAuthErrorAbort || o.PingInterval*time.Duration(o.MaxPingsOut+1) > 15*time.Second {
		t.Errorf("it ends after %d attempts, a wrong password: %v, a dead path after %d pings, one each %v", o.MaxReconnect, !o.IgnoreAuthErrorAbort, o.MaxPingsOut, o.PingInterval)
	}
	if err := conn.Publish("subject", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("a message without a server: %v, want %v", err, nats.ErrReconnectBufExceeded)
	}
}
