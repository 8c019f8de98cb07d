package fleet_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A connection is made again until it is closed, also after a wrong password, whatever the options say. A dead path is noticed
// after 15 s. A message that cannot be sent now is an error: the publisher sends it again, and the connection must not
// send it too.
func TestConnection(t *testing.T) {
	var log kit.Log
	conn, err := fleet.Connect("nats://127.0.0.1:1", log.Logger(), nats.MaxReconnects(1), nats.PingInterval(time.Hour), nats.Name("me"))
	kit.Must(t, err)
	defer conn.Close()
	if o := conn.Opts; o.MaxReconnect >= 0 || o.Name != "me" || !o.IgnoreAuthErrorAbort || o.PingInterval*time.Duration(o.MaxPingsOut+1) > 15*time.Second {
		t.Errorf("it ends after %d attempts, a wrong password: %v, a dead path after %d pings, one each %v", o.MaxReconnect, !o.IgnoreAuthErrorAbort, o.MaxPingsOut, o.PingInterval)
	}
	if err := conn.Publish("subject", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("a message without a server: %v, want %v", err, nats.ErrReconnectBufExceeded)
	}
	conn.Opts.DisconnectedErrCB(conn, errors.New("broken"))
	conn.Opts.DisconnectedErrCB(conn, nil) // it was closed
	conn.Opts.ReconnectedCB(conn)
	log.RequireLines(t, 1, `level=WARN msg="disconnected from NATS" err=broken`)
	log.RequireLines(t, 1, `level=INFO msg="connected to NATS"`)
	if conn, err := fleet.Connect("nats://127.0.0.1:1", nil, nats.RootCAs("/nowhere")); err == nil {
		conn.Close()
		t.Error("a file that is missing is accepted")
	}
}

func TestBadPublisherOptions(t *testing.T) {
	pipe, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
	kit.Must(t, err)
	good := fleet.PublisherOptions{Conn: new(nats.Conn), Source: pipe, Cluster: "c", Node: "n"}
	for _, tt := range []struct {
		names string
		spoil func(*fleet.PublisherOptions)
	}{
		{"Conn", func(o *fleet.PublisherOptions) { o.Conn = nil }},
		{"Source", func(o *fleet.PublisherOptions) { o.Source = nil }},
		{"Cluster", func(o *fleet.PublisherOptions) { o.Cluster = "" }},
		{"Cluster", func(o *fleet.PublisherOptions) { o.Cluster = strings.Repeat("c", 81) }},
		{"Node", func(o *fleet.PublisherOptions) { o.Node = "a/b" }},
		{"Node", func(o *fleet.PublisherOptions) { o.Node = strings.Repeat("n", 254) }},
		{"Limits", func(o *fleet.PublisherOptions) { o.Limits.Replicas = 6 }},
		{"Limits", func(o *fleet.PublisherOptions) { o.Limits.MaxBytes = -1 }},
		{"MaxAge", func(o *fleet.PublisherOptions) { o.Limits.MaxAge = -1 }},
	} {
		o := good
		tt.spoil(&o)
		if _, err := fleet.NewPublisher(o); !errors.Is(err, pleg.ErrInvalidOption) || !strings.Contains(err.Error(), tt.names) {
			t.Errorf("got the error %v, want an error that names %s", err, tt.names)
		}
	}
}
