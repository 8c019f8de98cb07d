package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A client that does not answer pings loses its connection; an idle client that answers
// them keeps it.
func TestKeepalive(t *testing.T) {
	// The beginning of an HTTP/2 connection: preface and empty SETTINGS.
	const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		f := newFixture(t, pipeline.Options{}, server.Options{Keepalive: 20 * time.Second, Registerer: registry})
		quiet := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		dead, err := f.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer dead.Close()
		if _, err := dead.Write([]byte(hello)); err != nil {
			t.Fatal(err)
		}
		kit.Relist(10)
		if n := kit.Metric(t, registry, "pleg_server_connections"); n != 2 {
			t.Errorf("after 10 s: %v connections, want 2", n)
		}
		kit.Relist(50)
		if n := kit.Metric(t, registry, "pleg_server_connections"); n != 1 {
			t.Errorf("after a minute: %v connections, want 1", n)
		}
		f.Runtime.Set("a", "c=running")
		if m, err := quiet.Recv(); err != nil || m.GetEvent().GetContainerId() != "c" {
			t.Errorf("the idle client got %v, %v", m, err)
		}
	})
}
