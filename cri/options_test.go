package cri_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

func TestNewRejects(t *testing.T) {
	for _, tt := range []struct {
		name, endpoint string
		opts           cri.Options
		words          string
	}{
		{"nothing", "", cri.Options{}, `endpoint "" is not a unix socket: want unix:///path/to/socket or /path/to/socket`},
		{"a relative path", "run/cri.sock", cri.Options{}, "is not a unix socket"},
		{"a relative unix url", "unix://run/cri.sock", cri.Options{}, "is not a unix socket"},
		{"a unix url without slashes", "unix:/run/cri.sock", cri.Options{}, "is not a unix socket"},
		{"tcp", "tcp://127.0.0.1:1234", cri.Options{}, "is not a unix socket"},
		{"a Windows pipe", "npipe:////./pipe/containerd", cri.Options{}, "is not a unix socket"},
		{"a path too long for the kernel", "/" + strings.Repeat("x", 107), cri.Options{}, "at most 107 bytes, this has 108"},
		{"ListTimeout", "/s", cri.Options{ListTimeout: -time.Second}, "cri: Options.ListTimeout must be positive, got -1s"},
		{"StatusTimeout", "/s", cri.Options{StatusTimeout: -1}, "cri: Options.StatusTimeout must be positive, got -1ns"},
		{"ConnectTimeout", "/s", cri.Options{ConnectTimeout: -1}, "cri: Options.ConnectTimeout must be positive, got -1ns"},
		{"EventProbePeriod", "/s", cri.Options{EventProbePeriod: -1}, "cri: Options.EventProbePeriod must be positive, got -1ns"},
		{"EventProbeTimeout", "/s", cri.Options{EventProbeTimeout: -1}, "cri: Options.EventProbeTimeout must be positive, got -1ns"},
		{"MaxStatusCalls", "/s", cri.Options{MaxStatusCalls: -2}, "cri: Options.MaxStatusCalls must be positive, got -2"},
		{"MaxRecvBytes", "/s", cri.Options{MaxRecvBytes: -3}, "cri: Options.MaxRecvBytes must be positive, got -3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, err := cri.New(tt.endpoint, tt.opts)
			if client != nil || err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("got %v, %v; want an error with %q", client, err, tt.words)
			}
		})
	}
}

func TestNewOnARegistererInUse(t *testing.T) {
	registry := prometheus.NewRegistry()
	newClient(t, "/s", cri.Options{Registerer: registry})
	if _, err := cri.New("/s", cri.Options{Registerer: registry}); err == nil {
		t.Error("two clients on one registerer: no error")
	}
	other := prometheus.NewRegistry()
	for _, runtime := range []string{"a", "b"} {
		newClient(t, "/s", cri.Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"runtime": runtime}, other)})
	}
}
