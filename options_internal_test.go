package pipeline

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// What New makes of the options.
func TestOptionsAreCompleted(t *testing.T) {
	rt, log := plegtest.New(), slog.New(slog.NewTextHandler(new(strings.Builder), nil))
	given := Options{
		Runtime: rt, RelistPeriod: 2, RelistThreshold: 30, Events: EventsAuto, RelistPeriodWithEvents: 9, ListTimeout: 4, Inspectors: 5, InspectTimeout: 6, MaxQuarantine: 7, History: 8,
		KubeletEvents: true, Logger: log, KubeletMetricNames: true,
	}
	change := func(o Options, f func(*Options)) Options { f(&o); return o }
	defaults := Options{
		Runtime: rt, RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute, Events: EventsOff, RelistPeriodWithEvents: 10 * time.Second, ListTimeout: 2 * time.Minute,
		Inspectors: 16, InspectTimeout: 2 * time.Minute, MaxQuarantine: 5 * time.Minute, History: 8192, Logger: slog.New(slog.DiscardHandler),
	}
	for name, tc := range map[string]struct{ got, want Options }{
		"none":   {Options{Runtime: rt}, defaults},
		"all":    {given, given},
		"events": {Options{Runtime: rt, Events: EventsRequire}, change(defaults, func(o *Options) { o.Events = EventsRequire })},
		"events that are off, of a runtime without any": {Options{Runtime: rt.Basic(), Events: EventsOff}, change(defaults, func(o *Options) { o.Runtime = rt.Basic() })},
		"no quarantine, and a short history": {
			Options{Runtime: rt, MaxQuarantine: -5, History: -5}, change(defaults, func(o *Options) { o.MaxQuarantine, o.History = 1, 1000 }),
		},
		"a third of the threshold": {
			change(given, func(o *Options) { o.RelistPeriodWithEvents = 11 }), change(given, func(o *Options) { o.RelistPeriodWithEvents = 10 }),
		},
	} {
		if err := tc.got.complete(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(tc.got, tc.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, tc.got, tc.want)
		}
	}
}

// A pod that the cache has as inspected is in the index for lookups: that is written first. It cannot take a nil.
func TestIndexIsWrittenBeforeTheCache(t *testing.T) {
	s := &stores{Cache: podcache.New(), index: containerindex.NewIndex(containerindex.Source{})}
	defer func() {
		if _, err := s.Get("a"); recover() == nil || err == nil {
			t.Errorf("the cache has the status (%v) before the index", err)
		}
	}()
	s.Set("a", &pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{nil}}, nil, time.Now())
}

// observing is a store that keeps the pods that wait.
type observing struct {
	Store
	pending []pleg.PodUID
}

func (o *observing) Observe(_ time.Time, pending []pleg.PodUID) { o.pending = slices.Clone(pending) }

func TestStoreGetsEachPodThatWaits(t *testing.T) {
	own := new(observing)
	s := &stores{Cache: podcache.New(), own: own, log: slog.New(slog.DiscardHandler)}
	s.Observe(time.Now(), []*pleg.Pod{{UID: "a"}, {UID: "b"}})
	if got := fmt.Sprint(own.pending); got != "[a b]" {
		t.Errorf("pending are %s, want both", got)
	}
}
