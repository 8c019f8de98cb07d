// Package instrument registers the metrics of the stages, under the project's
// names or, where the meaning is the same, under the kubelet's.
package instrument

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Registry says where the metrics go and how the shared ones are called. The
// zero value registers nothing: the metrics still count, unseen.
type Registry struct {
	Registerer prometheus.Registerer
	// KubeletNames gives the metrics that the kubelet has too its exact names.
	KubeletNames bool
}

// Name picks the name of a metric that the kubelet has too.
func (r Registry) Name(ours, kubelet string) string {
	if r.KubeletNames {
		return kubelet
	}
	return ours
}

// Register registers all collectors, or none if one of them fails.
func (r Registry) Register(collectors ...prometheus.Collector) error {
	if r.Registerer == nil {
		return nil
	}
	for i, c := range collectors {
		if err := r.Registerer.Register(c); err != nil {
			for _, done := range collectors[:i] {
				r.Registerer.Unregister(done)
			}
			if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
				return fmt.Errorf("register metrics: %w (does another pipeline use this registerer? wrap it with prometheus.WrapRegistererWith)", err)
			}
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}
