package dispatcher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	// events has a counter for each type that subscribers may get.
	events map[pleg.EventType]prometheus.Counter
	missed prometheus.Counter
}

func newMetrics(reg instrument.Registry, query func() []stats) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		events: make(map[pleg.EventType]prometheus.Counter),
		missed: s.Counter(reg.Name("pleg_discarded_events_total", "kubelet_pleg_discard_events"),
			"Events that a subscriber missed because the log had moved past it."),
	}
	events := s.CounterVec("pleg_events_total", "Events published, each counted once whatever the number of subscribers.", "type")
	for _, t := range pleg.EventTypes(pleg.ClassNormal, pleg.ClassOnRequest) {
		m.events[t] = events.WithLabelValues(string(t))
	}
	s.Add(subscribers(query))
	return m, s.Register()
}

// stats are the figures of one subscriber.
type stats struct {
	label        string
	lag          pleg.Lag
	gaps, missed uint64
}

// queryStats asks the loop for the figures of the subscribers; it returns none unless
// the loop runs.
func (d *Dispatcher) queryStats() []stats {
	select {
	case <-d.started:
	default:
		return nil
	}
	reply := make(chan []stats, 1)
	select {
	case d.queries <- reply:
		return <-reply
	case <-d.stopped:
		return nil
	}
}

func (d *Dispatcher) stats() []stats {
	all := make([]stats, 0, len(d.subscribers))
	for s := range d.subscribers {
		all = append(all, stats{s.label, s.Lag(), s.gaps.Load(), s.missed.Load()})
	}
	return all
}

// subscribers collects the metrics of the present subscribers. The series of a
// subscriber end when it leaves.
type subscribers func() []stats

func subscriberDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("pleg_subscriber_"+name, help, []string{"subscriber"}, nil)
}

var (
	subscribersDesc = prometheus.NewDesc("pleg_subscribers", "Subscribers at present.", nil, nil)
	lagEventsDesc   = subscriberDesc("lag_events", "Published events, of all pods, that the subscriber has not read.")
	lagSecondsDesc  = subscriberDesc("lag_seconds", "Age of the oldest event that the subscriber has not read; 0 if there is none.")
	gapsDesc        = subscriberDesc("gaps_total", "Gaps that the subscriber got.")
	missedDesc      = subscriberDesc("missed_events_total", "Events, of all pods, that the gaps of the subscriber skipped.")
)

// Describe implements [prometheus.Collector].
func (query subscribers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{subscribersDesc, lagEventsDesc, lagSecondsDesc, gapsDesc, missedDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (query subscribers) Collect(ch chan<- prometheus.Metric) {
	all := query()
	ch <- prometheus.MustNewConstMetric(subscribersDesc, prometheus.GaugeValue, float64(len(all)))
	for _, s := range all {
		ch <- prometheus.MustNewConstMetric(lagEventsDesc, prometheus.GaugeValue, float64(s.lag.Events), s.label)
		ch <- prometheus.MustNewConstMetric(lagSecondsDesc, prometheus.GaugeValue, s.lag.Age.Seconds(), s.label)
		ch <- prometheus.MustNewConstMetric(gapsDesc, prometheus.CounterValue, float64(s.gaps), s.label)
		ch <- prometheus.MustNewConstMetric(missedDesc, prometheus.CounterValue, float64(s.missed), s.label)
	}
}
