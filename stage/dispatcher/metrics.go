package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	events    map[pleg.EventType]prometheus.Counter
	discarded prometheus.Counter
}

func newMetrics(reg instrument.Registry, query func() []stats) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		events: make(map[pleg.EventType]prometheus.Counter),
		discarded: s.Counter(reg.Name("pleg_discarded_events_total", "kubelet_pleg_discard_events"),
			"Events that a subscriber missed because its buffer was full."),
	}
	events := s.CounterVec("pleg_events_total", "Events published, each counted once whatever the number of subscribers.", "type")
	for _, t := range pleg.EventTypes(pleg.ClassNormal, pleg.ClassOnRequest) {
		m.events[t] = events.WithLabelValues(string(t))
	}
	s.Add(subscribers(query))
	return m, s.Register()
}

func (m *metrics) count(t pleg.EventType) { m.events[t].Inc() }

// stats are the figures of one subscriber.
type stats struct {
	label                          string
	delivered, discarded, repaired uint64
	queued                         int
	oldest                         time.Duration
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
	now := d.now()
	all := make([]stats, 0, len(d.subscribers))
	for _, s := range d.subscribers {
		all = append(all, stats{s.label, s.delivered, s.discarded, s.repaired, len(s.events), s.oldest(now)})
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
	deliveredDesc   = subscriberDesc("delivered_events_total", "Events put into the subscriber's buffer, without repairs.")
	discardedDesc   = subscriberDesc("discarded_events_total", "Events that the subscriber missed because its buffer was full.")
	repairedDesc    = subscriberDesc("repaired_pods_total", "PodSync events put into the subscriber's buffer in place of missed ones.")
	queuedDesc      = subscriberDesc("queue_length", "Events in the subscriber's buffer.")
	oldestDesc      = subscriberDesc("oldest_event_seconds", "Age of the oldest event in the subscriber's buffer; 0 if it is empty.")
)

// Describe implements [prometheus.Collector].
func (query subscribers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{subscribersDesc, deliveredDesc, discardedDesc, repairedDesc, queuedDesc, oldestDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (query subscribers) Collect(ch chan<- prometheus.Metric) {
	all := query()
	ch <- prometheus.MustNewConstMetric(subscribersDesc, prometheus.GaugeValue, float64(len(all)))
	for _, s := range all {
		for _, m := range []struct {
			desc  *prometheus.Desc
			kind  prometheus.ValueType
			value float64
		}{
			{deliveredDesc, prometheus.CounterValue, float64(s.delivered)},
			{discardedDesc, prometheus.CounterValue, float64(s.discarded)},
			{repairedDesc, prometheus.CounterValue, float64(s.repaired)},
			{queuedDesc, prometheus.GaugeValue, float64(s.queued)},
			{oldestDesc, prometheus.GaugeValue, s.oldest.Seconds()},
		} {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value, s.label)
		}
	}
}
