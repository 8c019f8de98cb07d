package dispatcher

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	// events contains a counter for each type that subscribers may get.
	events map[pleg.EventType]prometheus.Counter
	missed prometheus.Counter
}

func newMetrics(reg instrument.Registry, present *subscribers) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		events: make(map[pleg.EventType]prometheus.Counter),
		missed: s.Counter(reg.Name("pleg_discarded_events_total", "kubelet_pleg_discard_events"),
			"Events that a subscriber missed because the log had moved past it."),
	}
	events := s.CounterVec("pleg_events_total", "Events published, each counted once whatever the number of subscribers.", "type")
	for _, t := range eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest) {
		m.events[t] = events.WithLabelValues(string(t))
	}
	s.Add(present)
	return m, s.Register()
}

// counts are the gaps of the subscribers of one name, and the events that they missed.
type counts struct{ gaps, missed atomic.Uint64 }

// subscribers is the list of the present subscribers. It collects their metrics by name, which end
// with the last subscriber of the name.
type subscribers struct {
	atomic.Pointer[[]*Subscription]
}

func (list *subscribers) add(s *Subscription) {
	all := *list.Load()
	s.counts = new(counts)
	if i := slices.IndexFunc(all, func(other *Subscription) bool { return other.Name() == s.Name() }); i >= 0 {
		s.counts = all[i].counts
	}
	list.Store(new(append(all, s)))
}

func (list *subscribers) remove(s *Subscription) {
	list.Store(new(slices.DeleteFunc(slices.Clone(*list.Load()), func(other *Subscription) bool { return other == s })))
}

func subscriberDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("pleg_subscriber_"+name, help, []string{"subscriber"}, nil)
}

var (
	subscribersDesc = prometheus.NewDesc("pleg_subscribers", "Subscribers at present.", nil, nil)
	lagEventsDesc   = subscriberDesc("lag_events", "Published events, of all pods, that the slowest subscriber of this name has not read.")
	lagSecondsDesc  = subscriberDesc("lag_seconds", "Age of the oldest event that a subscriber of this name has not read; 0 if there is none.")
	gapsDesc        = subscriberDesc("gaps_total", "Gaps that subscribers of this name got.")
	missedDesc      = subscriberDesc("missed_events_total", "Events, of all pods, that these gaps skipped.")
)

// Describe implements [prometheus.Collector].
func (list *subscribers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{subscribersDesc, lagEventsDesc, lagSecondsDesc, gapsDesc, missedDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (list *subscribers) Collect(ch chan<- prometheus.Metric) {
	all := *list.Load()
	lags, counted := make(map[string]pleg.Lag), make(map[string]*counts)
	for _, s := range all {
		lag, most := s.Lag(), lags[s.Name()]
		lags[s.Name()] = pleg.Lag{Events: max(lag.Events, most.Events), Age: max(lag.Age, most.Age)}
		counted[s.Name()] = s.counts
	}
	ch <- prometheus.MustNewConstMetric(subscribersDesc, prometheus.GaugeValue, float64(len(all)))
	for name, c := range counted {
		ch <- prometheus.MustNewConstMetric(lagEventsDesc, prometheus.GaugeValue, float64(lags[name].Events), name)
		ch <- prometheus.MustNewConstMetric(lagSecondsDesc, prometheus.GaugeValue, lags[name].Age.Seconds(), name)
		ch <- prometheus.MustNewConstMetric(gapsDesc, prometheus.CounterValue, float64(c.gaps.Load()), name)
		ch <- prometheus.MustNewConstMetric(missedDesc, prometheus.CounterValue, float64(c.missed.Load()), name)
	}
}
