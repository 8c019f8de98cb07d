package pipeline

import (
	"errors"
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

// recording is a store that notes its calls.
type recording struct{ calls []string }

func (r *recording) note(call ...any) { r.calls = append(r.calls, fmt.Sprintln(call...)) }

func (r *recording) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	r.note("set", uid, status, err, at)
}
func (r *recording) Delete(uid pleg.PodUID, at time.Time)        { r.note("delete", uid, at) }
func (r *recording) Touch(uid pleg.PodUID, at time.Time)         { r.note("touch", uid, at) }
func (r *recording) Observe(at time.Time, pending []pleg.PodUID) { r.note("observe", at, pending) }

// The embedder's store gets the pods, the result and the time of the list that the cache gets.
func TestStoreGetsWhatTheCacheGets(t *testing.T) {
	got, want := new(recording), new(recording)
	s := &stores{Cache: podcache.New(), own: got, index: containerindex.NewIndex(containerindex.Source{}), log: slog.New(slog.DiscardHandler)}
	at, status, errInspect := time.Unix(7, 0), &pleg.PodStatus{UID: "a"}, errors.New("inspection failed")
	s.Observe(at, []*pleg.Pod{{UID: "a"}, {UID: "b"}})
	want.Observe(at, []pleg.PodUID{"a", "b"})
	s.Set("a", status, nil, at.Add(1))
	want.Set("a", status, nil, at.Add(1))
	s.Set("b", nil, errInspect, at.Add(2))
	want.Set("b", nil, errInspect, at.Add(2))
	s.Touch("a", at.Add(3))
	want.Touch("a", at.Add(3))
	s.Delete("b", at.Add(4))
	want.Delete("b", at.Add(4))
	if !slices.Equal(got.calls, want.calls) {
		t.Errorf("the store got\n%s, want\n%s", got.calls, want.calls)
	}
}
