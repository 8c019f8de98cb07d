package fleet

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestAPIPrefix(t *testing.T) {
	t.Parallel()
	prefixed := func(js jetstream.JetStream, err error) jetstream.JetStream {
		t.Helper()
		kit.Must(t, err)
		return js
	}
	conn := &nats.Conn{}
	for want, js := range map[string]jetstream.JetStream{
		"$JS.API.":     prefixed(jetstream.New(conn)),
		"$JS.hub.API.": prefixed(jetstream.NewWithDomain(conn, "hub")),
		"hub.api.":     prefixed(jetstream.NewWithAPIPrefix(conn, "hub.api")),
	} {
		if got := apiPrefix(js); got != want {
			t.Errorf("prefix %q, want %q", got, want)
		}
	}
}
