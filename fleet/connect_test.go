package fleet_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A message that cannot be sent now is an error: the publisher sends it again, and the connection must not
// send it too.
func TestConnectionKeepsNoMessage(t *testing.T) {
	conn, err := fleet.Connect("nats://127.0.0.1:1", nil)
	kit.Must(t, err)
	defer conn.Close()
	if err := conn.Publish("subject", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("a message without a server: %v, want %v", err, nats.ErrReconnectBufExceeded)
	}
}
