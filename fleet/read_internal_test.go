package fleet

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestEndOfAnswer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                         string
		status, description, pending string
		complete, notAtOnce          bool
	}{
		{name: "complete", status: "204", description: "EOB", pending: "0", complete: true},
		{name: "cut off", status: "204", description: "EOB", pending: "7", notAtOnce: true},
		{name: "no keys", status: "404", description: "No Results", complete: true},
		{name: "a key is gone meanwhile", status: "404", description: "Message Not Found"},
		{name: "too many keys", status: "413", description: "Too Many Results", notAtOnce: true},
		{name: "no direct gets", status: "503", notAtOnce: true},
		{name: "another error", status: "500", description: "disk"},
	}
	for _, tt := range tests {
		h := nats.Header{"Status": {tt.status}, "Description": {tt.description}, "Nats-Num-Pending": {tt.pending}, "Nats-UpTo-Sequence": {"9"}}
		upTo, err := endOfAnswer(h)
		if (err == nil) != tt.complete || errors.Is(err, errNotAtOnce) != tt.notAtOnce {
			t.Errorf("%s: %v", tt.name, err)
		}
		if want := map[bool]uint64{true: 9}[tt.status == "204" && tt.complete]; upTo != want {
			t.Errorf("%s: a replica that looked up to %d, want %d", tt.name, upTo, want)
		}
	}
}

func TestAPIPrefix(t *testing.T) {
	t.Parallel()
	prefixed := func(js jetstream.JetStream, err error) jetstream.JetStream {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
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
