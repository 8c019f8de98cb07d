package view_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// TestRead compares the figures with the work of a pipeline, under both sets of metric names.
func TestRead(t *testing.T) {
	for _, kubeletNames := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			runtime := plegtest.New()
			runtime.Set("shop/a", "c=running /s=running")
			runtime.Set("shop/b", "c=running /s=running")
			registry := prometheus.NewPedanticRegistry()
			p := kit.New(t, pipeline.Options{Runtime: runtime.Basic(), Registerer: registry, KubeletMetricNames: kubeletNames, Inspectors: 3, History: -1})
			p.Start(t)
			began := time.Now()
			time.Sleep(3500 * time.Millisecond)
			f := view.ReadFigures(t.Context(), p.Pipeline, registry)
			if f.Epoch != p.Epoch() || !f.At.Equal(time.Now()) || f.Verdict.Severity != verdict.OK {
				t.Errorf("figures = %+v", f)
			}
			if f.Lister.LastList == nil || !f.Lister.LastList.Equal(began.Add(3*time.Second)) || f.Lister.Lists != 4 || f.Lister.Errors != 0 {
				t.Errorf("lister = %+v, want 4 lists, the last one after 3 s", f.Lister)
			}
			if f.Hinter.Stream != "off" || f.Differ.Queue != 0 {
				t.Errorf("hinter = %+v, differ = %+v", f.Hinter, f.Differ)
			}
			if f.Lister.PeriodSeconds != 1 || f.Lister.LastSeconds != 0 || f.Lister.RunningSeconds != 0 || f.Inspector.InspectionSeconds != 0 {
				t.Errorf("the times are %+v and %+v", f.Lister, f.Inspector)
			}
			if f.Inspector.Inspections != 2 || f.Inspector.Inspectors != 3 || f.Inspector.InFlight != 0 || f.Dispatcher != (view.Dispatcher{Events: 6}) {
				t.Errorf("inspector = %+v, dispatcher = %+v", f.Inspector, f.Dispatcher)
			}
			runtime.SetPodFault("shop/a", plegtest.Delay(5*time.Second))
			runtime.Set("shop/a", "c=exited /s=running")
			time.Sleep(2 * time.Second)
			runtime.Set("shop/b", "c=exited /s=running")
			time.Sleep(2 * time.Second)
			if f := view.ReadFigures(t.Context(), p.Pipeline, registry).Inspector; f.Hung != 1 || f.InFlight != 1 || f.Slots != "1 of 3, 1 hung" {
				t.Errorf("inspector = %+v, want an inspection that hangs", f)
			}
			if v, want := view.ReadFigures(t.Context(), p.Pipeline, registry).Verdict, verdict.Of(p.Look()); v.Text != want.Text || v.Severity != verdict.Problem {
				t.Errorf("the verdict is %q, want %q", v.Text, want.Text)
			}
			time.Sleep(2 * time.Second)
			runtime.SetPodFault("shop/a", plegtest.Fail(errors.New("broken")))
			runtime.Set("shop/a", "/s=running")
			time.Sleep(time.Second)
			runtime.SetListFault(plegtest.Fail(errors.New("broken")))
			time.Sleep(2 * time.Second)
			f = view.ReadFigures(t.Context(), p.Pipeline, registry)
			if f.Lister.Errors != 2 || f.Lister.Failures != 2 || f.Inspector.Errors != 1 || f.Inspector.InspectionSeconds != 5 {
				t.Errorf("lister = %+v, inspector = %+v, want two lists that failed, and an inspection after one of 5 s", f.Lister, f.Inspector)
			}
			runtime.SetListFault(nil)
			runtime.SetPodFault("shop/a", nil)
			for n := range 1000 {
				runtime.Set(pleg.PodUID(fmt.Sprint("shop/of-many-", n)), "/s=running")
			}
			time.Sleep(2 * time.Second)
			late, err := p.Subscribe(pleg.SubscribeOptions{After: pleg.Position{Epoch: p.Epoch(), Seq: 1}})
			kit.Must(t, err)
			gap := <-late.Events()
			if f := view.ReadFigures(t.Context(), p.Pipeline, registry).Dispatcher; gap.Missed == 0 || f.Missed != gap.Missed || f.Subscribers != 1 {
				t.Errorf("dispatcher = %+v, want a subscriber that missed %d events", f, gap.Missed)
			}
			late.Close()
			runtime.SetListFault(plegtest.Delay(time.Minute))
			last := p.Look().Relist.Success
			for _, age := range []time.Duration{10 * time.Second, 10*time.Second + 1} {
				time.Sleep(time.Until(last.Add(age)))
				if f := view.ReadFigures(t.Context(), p.Pipeline, registry); f.Lister.Late != (age > 10*time.Second) {
					t.Errorf("the last list is of %v ago: late = %v", time.Since(*f.Lister.LastList), f.Lister.Late)
				} else if began := p.Look().Relist.Started; f.Lister.RunningSeconds < 6 || f.Lister.RunningSeconds != time.Since(began).Seconds() {
					t.Errorf("the list runs for %v s, want since %v", f.Lister.RunningSeconds, began)
				}
			}
			runtime.SetListFault(nil)
		})
	}
}

// TestLateWithEvents requires that pods are late only once several lists are missing, also while lists are rare.
func TestLateWithEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.SetListFault(plegtest.Delay(100 * time.Millisecond))
		registry := prometheus.NewRegistry()
		p := kit.New(t, pipeline.Options{Runtime: runtime, Registerer: registry, Events: pipeline.EventsAuto})
		p.Start(t)
		late := func() bool { return view.ReadFigures(t.Context(), p.Pipeline, registry).Lister.Late }
		time.Sleep(2 * time.Second)
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if late() {
				t.Fatalf("late between two lists: %+v", p.Look().Relist)
			}
		}
		runtime.Announce("shop/a", "c")
		time.Sleep(time.Second)
		if f := view.ReadFigures(t.Context(), p.Pipeline, registry); f.Hinter != (view.Hinter{Stream: "up", CRIEvents: 1}) || f.Lister.LastSeconds != 0.1 {
			t.Errorf("hinter = %+v, lister = %+v, want one event and a list of 0.1 s", f.Hinter, f.Lister)
		}
		runtime.SetListFault(plegtest.Hang)
		last := p.Look().Relist
		for _, beyond := range []time.Duration{0, 1} {
			time.Sleep(time.Until(last.Success.Add(3*last.Period + beyond)))
			if late() != (beyond > 0) {
				t.Errorf("late is %t %v after the last list: %+v", late(), time.Since(last.Success), last)
			}
		}
	})
}

// A stream of events that was opened once is down unless it is up, under either name of the metric.
func TestStreamOfEvents(t *testing.T) {
	p := kit.New(t, pipeline.Options{})
	for name, want := range map[string]string{
		"pleg_event_stream_up": "up", "pleg_event_stream_opened_total": "down", "kubelet_evented_pleg_connection_success_count": "down", "other": "off",
	} {
		one := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
		one.Set(1)
		registry := prometheus.NewRegistry()
		registry.MustRegister(one)
		if got := view.ReadFigures(t.Context(), p.Pipeline, registry).Hinter.Stream; got != want {
			t.Errorf("with %s the stream is %s, want %s", name, got, want)
		}
	}
}

// TestReadNamesSomePods makes more inspections hang than the figures name. Before that, the figures
// name no pod.
func TestReadNamesSomePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		runtime.SetInspectFault(plegtest.Delay(time.Hour))
		for i := range view.MaxNamed + 5 {
			runtime.Set(pleg.PodUID(fmt.Sprintf("shop/p%d", i)), "c=running /s=running")
		}
		registry := prometheus.NewRegistry()
		p := kit.New(t, pipeline.Options{Runtime: runtime.Basic(), Registerer: registry, InspectTimeout: 20 * time.Second})
		if f := view.ReadFigures(t.Context(), p.Pipeline, registry); f.Lister.LastList != nil || f.Waiting == nil || len(f.Waiting) > 0 {
			t.Errorf("before the first list: %+v", f)
		}
		p.Start(t)
		time.Sleep(10*time.Second + time.Second/2) // between two lists
		f := view.ReadFigures(t.Context(), p.Pipeline, registry)
		var longest []pleg.PodUID
		for _, p := range p.Cache().Pending()[:100] {
			longest = append(longest, p.UID)
		}
		if !slices.Equal(f.Waiting, longest) {
			t.Errorf("%d pods are named, %v, want %v", len(f.Waiting), f.Waiting, longest)
		}
		if f.Inspector.InFlight == 0 || f.Differ.Queue == 0 {
			t.Errorf("inspector = %+v, differ = %+v, want hung inspections", f.Inspector, f.Differ)
		}
		time.Sleep(20 * time.Second)
		f = view.ReadFigures(t.Context(), p.Pipeline, registry)
		of := p.Look()
		hung, pods := view.CountHung(of)
		if len(of.Quarantined) == 0 || len(of.Quarantined) == len(of.Overdue) || f.Differ != (view.Differ{Queue: of.Waiting, Quarantined: len(of.Quarantined)}) || f.Inspector.Hung != hung || hung == pods {
			t.Errorf("differ = %+v, inspector = %+v, want pods in quarantine after the time-out, as in %+v", f.Differ, f.Inspector, of)
		}
		runtime.SetInspectFault(nil)
	})
}

// Programs and the page read these names. A figure of 0 is present.
func TestJSONOfFigures(t *testing.T) {
	at := time.Unix(20, 0).UTC()
	for want, f := range map[string]view.Figures{
		`{"epoch":"e","at":"1970-01-01T00:00:20Z","verdict":{"severity":"ok","text":"OK","findings":null},"lister":{"lastList":"1970-01-01T00:00:20Z","lastSeconds":1,"periodSeconds":2,"late":true,"runningSeconds":3,"failures":4,"lists":5,"errors":6},` +
			`"hinter":{"stream":"up","criEvents":7},"differ":{"queue":8,"quarantined":9},"inspector":{"inFlight":10,"inspectors":11,"slots":"some","hung":12,"inspections":13,"inspectionSeconds":14,"errors":15},` +
			`"dispatcher":{"events":16,"missed":17,"subscribers":18},"waiting":["u1","u2"]}`: {
			Epoch: "e", At: at, Verdict: verdict.Verdict{Severity: verdict.OK, Text: "OK"},
			Lister:     view.Lister{LastList: &at, LastSeconds: 1, PeriodSeconds: 2, Late: true, RunningSeconds: 3, Failures: 4, Lists: 5, Errors: 6},
			Hinter:     view.Hinter{Stream: "up", CRIEvents: 7},
			Differ:     view.Differ{Queue: 8, Quarantined: 9},
			Inspector:  view.Inspector{InFlight: 10, Inspectors: 11, Slots: "some", Hung: 12, Inspections: 13, InspectionSeconds: 14, Errors: 15},
			Dispatcher: view.Dispatcher{Events: 16, Missed: 17, Subscribers: 18},
			Waiting:    []pleg.PodUID{"u1", "u2"},
		},
		`{"epoch":"","at":"0001-01-01T00:00:00Z","verdict":{"severity":"","text":"","findings":null},"lister":{"lastSeconds":0,"periodSeconds":0,"late":false,"runningSeconds":0,"failures":0,"lists":0,"errors":0},"hinter":{"stream":"","criEvents":0},` +
			`"differ":{"queue":0,"quarantined":0},"inspector":{"inFlight":0,"inspectors":0,"slots":"","hung":0,"inspections":0,"inspectionSeconds":0,"errors":0},"dispatcher":{"events":0,"missed":0,"subscribers":0},"waiting":null}`: {},
	} {
		if got, err := json.Marshal(f); err != nil || string(got) != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, got, want)
		}
	}
}

// A pod is hung once, whether it is in flight, in quarantine or both.
func TestCountHung(t *testing.T) {
	s := pleg.Status{
		Overdue:     []pleg.Inspection{{UID: "a", Hung: true}, {UID: "b"}, {UID: "c", Hung: true}},
		Quarantined: []pleg.Quarantined{{UID: "c"}, {UID: "d"}, {UID: "e"}},
	}
	if inspections, pods := view.CountHung(s); inspections != 2 || pods != 4 {
		t.Errorf("%d inspections of %d pods hang, want 2 of 4", inspections, pods)
	}
}

func TestSlotsSayWhyThereAreMore(t *testing.T) {
	for want, test := range map[string]struct{ inFlight, hung, slow int }{
		"0 of 8":                              {0, 0, 0},
		"8 of 8":                              {8, 0, 0},
		"1 of 8, 1 hung":                      {1, 1, 0},
		"8 of 8, 8 slow":                      {8, 0, 8},
		"2 of 8, 1 slow":                      {2, 0, 1},
		"8 of 8 + 4 beside 4 hung":            {12, 4, 0},
		"8 of 8 + 1 beside 3 hung and 6 slow": {9, 3, 6},
	} {
		s := pleg.Status{InFlight: test.inFlight, Inspectors: 8}
		for n := range test.hung + test.slow {
			s.Overdue = append(s.Overdue, pleg.Inspection{UID: pleg.PodUID(fmt.Sprint(n)), Hung: n < test.hung})
		}
		if got := view.Slots(s); got != want {
			t.Errorf("%+v: %q, want %q", test, got, want)
		}
	}
}
