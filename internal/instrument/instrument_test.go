package instrument_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A program can repair its options and try again: the first try leaves no metric behind.
func TestRegistersAllOrNone(t *testing.T) {
	reg := prometheus.NewRegistry()
	gauge := func(name string) prometheus.Collector {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: name})
	}
	taken := gauge("taken")
	kit.Must(t, reg.Register(taken))
	for range 2 {
		if err := (instrument.Registry{Registerer: reg}).Register(gauge("ours"), gauge("taken")); err == nil {
			t.Fatal("a name is taken twice")
		}
	}
	reg.Unregister(taken)
	kit.Must(t, instrument.Registry{Registerer: reg}.Register(gauge("ours"), gauge("taken")))
}

// A second Unregister, such as by a client that is closed twice, takes nothing away from the next set.
func TestUnregistersOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	register := func() *instrument.Set {
		s := instrument.Registry{Registerer: reg}.NewSet()
		s.Counter("ours_total", "Ours.")
		kit.Must(t, s.Register())
		return s
	}
	first := register()
	first.Unregister()
	register()
	first.Unregister()
	if families, err := reg.Gather(); err != nil || len(families) != 1 {
		t.Errorf("%d metrics of the second set, %v, want 1", len(families), err)
	}
}
