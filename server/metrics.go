package server

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connections, watchers               prometheus.Gauge
	refusedConnections, refusedWatchers prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pleg_server_refused_total",
		Help: "Connections and watchers refused because there were too many.",
	}, []string{"what"})
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_server_connections", Help: "Current connections to the gRPC service.",
		}),
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_server_watchers", Help: "Current Watch calls.",
		}),
		refusedConnections: refused.WithLabelValues("connection"),
		refusedWatchers:    refused.WithLabelValues("watcher"),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{refused, m.connections, m.watchers} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
