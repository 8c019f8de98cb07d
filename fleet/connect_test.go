package fleet_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"regexp"
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
	conn, err := fleet.Connect("nats://127.0.0.1:1", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), nats.MaxReconnects(1), nats.PingInterval(time.Hour), nats.Name("me"))
	kit.Must(t, err)
	defer conn.Close()
	if o := conn.Opts; o.MaxReconnect >= 0 || o.Name != "me" || !o.IgnoreAuthErrorAbort || o.PingInterval != 5*time.Second || o.MaxPingsOut != 2 {
		t.Errorf("it ends after %d attempts, a wrong password: %v, a dead path after %d pings, one each %v", o.MaxReconnect, !o.IgnoreAuthErrorAbort, o.MaxPingsOut, o.PingInterval)
	}
	if o := conn.Opts; o.ReconnectWait != time.Second || o.ReconnectJitter != time.Second || o.ReconnectJitterTLS != time.Second {
		t.Errorf("it is made again after %v, and up to %v or %v more", o.ReconnectWait, o.ReconnectJitter, o.ReconnectJitterTLS)
	}
	if err := conn.Publish("subject", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("a message without a server: %v, want %v", err, nats.ErrReconnectBufExceeded)
	}
	conn.Opts.DisconnectedErrCB(conn, errors.New("broken"))
	conn.Opts.DisconnectedErrCB(conn, nil) // it was closed
	conn.Opts.ReconnectedCB(conn)
	conn.Opts.AsyncErrorCB(conn, nil, errors.New("slow"))
	lines := regexp.MustCompile(`time=\S+ `).ReplaceAllString(log.String(), "")
	if want := "level=WARN msg=\"disconnected from NATS\" err=broken\nlevel=INFO msg=\"connected to NATS\" server=\"\"\nlevel=DEBUG msg=\"NATS connection\" err=slow\n"; lines != want {
		t.Errorf("the log is\n%swant\n%s", lines, want)
	}
	var others kit.Log
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(others.Logger())
	silent, err := fleet.Connect("nats://127.0.0.1:1", nil)
	kit.Must(t, err)
	defer silent.Close()
	silent.Opts.ReconnectedCB(silent)
	others.RequireLines(t, 0, "")
	if conn, err := fleet.Connect("nats://127.0.0.1:1", nil, nats.RootCAs("/nowhere")); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "connect to NATS: ") {
		conn.Close()
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestBadPublisherOptions(t *testing.T) {
	pipe, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
	kit.Must(t, err)
	good := fleet.PublisherOptions{Conn: new(nats.Conn), Source: pipe, Cluster: "c", Node: "n"}
	for _, tt := range []struct {
		want  string
		spoil func(*fleet.PublisherOptions)
	}{
		{"PublisherOptions.Conn must not be nil", func(o *fleet.PublisherOptions) { o.Conn = nil }},
		{"PublisherOptions.Source must not be nil", func(o *fleet.PublisherOptions) { o.Source = nil }},
		{"PublisherOptions.Cluster must not be empty", func(o *fleet.PublisherOptions) { o.Cluster = "" }},
		{"PublisherOptions.Cluster has 81 bytes, the limit is 80", func(o *fleet.PublisherOptions) { o.Cluster = strings.Repeat("c", 81) }},
		{`PublisherOptions.Node is "a/b": want letters, digits, '-', '.' and '_'`, func(o *fleet.PublisherOptions) { o.Node = "a/b" }},
		{"PublisherOptions.Node has 254 bytes, the limit is 253", func(o *fleet.PublisherOptions) { o.Node = strings.Repeat("n", 254) }},
		{
			"Limits has a negative MaxBytes or MaxAgentBytes, or not 1 to 5 Replicas: {MaxAge:1s MaxBytes:0 MaxAgentBytes:2 Replicas:6}",
			func(o *fleet.PublisherOptions) {
				o.Limits = fleet.Limits{MaxAge: time.Second, MaxAgentBytes: 2, Replicas: 6}
			},
		},
		{"Options.Limits.MaxAge must be positive, got -1ns", func(o *fleet.PublisherOptions) { o.Limits.MaxAge = -1 }},
		{
			"PublisherOptions.Cluster must not be empty\nPublisherOptions.Node must not be empty\nOptions.Limits.MaxAge must be positive, got -2ns",
			func(o *fleet.PublisherOptions) { o.Cluster, o.Node, o.Limits.MaxAge = "", "", -2 },
		},
	} {
		o := good
		tt.spoil(&o)
		if _, err := fleet.NewPublisher(o); !errors.Is(err, pleg.ErrInvalidOption) || err.Error() != "new publisher: "+tt.want {
			t.Errorf("got the error %v, want %s", err, tt.want)
		}
	}
}
