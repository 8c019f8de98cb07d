package view_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestRead compares the figures with what a pipeline has done, under both sets of metric
// names.
func TestRead(t *testing.T) {
	for _, kubeletNames := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			runtime := plegtest.New()
			runtime.Set("shop/a", "c=running /s=running")
			runtime.Set("shop/b", "c=running /s=running")
			registry := prometheus.NewPedanticRegistry()
			p := kit.New(t, pipeline.Options{Runtime: runtime.Basic(), Registerer: registry, KubeletMetricNames: kubeletNames, Inspectors: 3})
			p.Start(t)
			began := time.Now()
			time.Sleep(3500 * time.Millisecond)
			f := view.ReadFigures(p.Pipeline, registry)
			if f.Epoch != p.Epoch() || !f.At.Equal(time.Now()) || f.Verdict.Severity != verdict.OK {
				t.Errorf("figures = %+v", f)
			}
			if f.Lister.LastList == nil || !f.Lister.LastList.Equal(began.Add(3*time.Second)) || f.Lister.Lists != 4 || f.Lister.Errors != 0 {
				t.Errorf("lister = %+v, want 4 lists, the last one after 3 s", f.Lister)
			}
			if f.Hinter.StreamUp || f.Hinter.Opened != 0 || f.Differ.Queue != 0 {
				t.Errorf("hinter = %+v, differ = %+v", f.Hinter, f.Differ)
			}
			if f.Inspector.Inspections != 2 || f.Inspector.Inspectors != 3 || f.Inspector.InFlight != 0 || f.Dispatcher.Events == 0 || f.Dispatcher.Subscribers != 0 {
				t.Errorf("inspector = %+v, dispatcher = %+v", f.Inspector, f.Dispatcher)
			}
		})
	}
}

// TestReadNamesSomePods makes more inspections hang than are named; before that, there are none.
func TestReadNamesSomePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.SetInspectFault(plegtest.Delay(time.Hour))
		for i := range view.MaxNamed + 5 {
			runtime.Set(pleg.PodUID(fmt.Sprintf("shop/p%d", i)), "c=running /s=running")
		}
		registry := prometheus.NewRegistry()
		p := kit.New(t, pipeline.Options{Runtime: runtime.Basic(), Registerer: registry})
		if f := view.ReadFigures(p.Pipeline, registry); f.Lister.LastList != nil || f.Waiting == nil || len(f.Waiting) > 0 {
			t.Errorf("before the first list: %+v", f)
		}
		p.Start(t)
		time.Sleep(10 * time.Second)
		f := view.ReadFigures(p.Pipeline, registry)
		if len(f.Waiting) != view.MaxNamed {
			t.Errorf("%d pods are named, want %d", len(f.Waiting), view.MaxNamed)
		}
		if f.Inspector.InFlight == 0 || f.Differ.Queue == 0 {
			t.Errorf("inspector = %+v, differ = %+v, want hung inspections", f.Inspector, f.Differ)
		}
		runtime.SetInspectFault(nil)
	})
}
