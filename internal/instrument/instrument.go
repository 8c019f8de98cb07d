// Package instrument registers the metrics of the stages under the project's
// names or, for metrics of the kubelet, under the kubelet's.
package instrument

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
)

// Registry registers metrics. The zero value registers nothing; the metrics still
// count.
type Registry struct {
	// Registerer receives the metrics. If nil, they stay unregistered.
	Registerer prometheus.Registerer
	// KubeletNames gives the kubelet's metrics the kubelet's names.
	KubeletNames bool
}

// Name returns the name of a metric that the kubelet exports too: kubelet if KubeletNames
// is set, otherwise ours.
func (r Registry) Name(ours, kubelet string) string {
	if r.KubeletNames {
		return kubelet
	}
	return ours
}

// Undoable returns a registerer that passes everything on to another registerer, and a function
// that unregisters all of it.
func Undoable(to prometheus.Registerer) (prometheus.Registerer, func()) {
	u := &undoable{Registerer: to}
	return u, u.undo
}

type undoable struct {
	prometheus.Registerer
	registered []prometheus.Collector
}

// Register implements [prometheus.Registerer].
func (u *undoable) Register(c prometheus.Collector) error {
	err := u.Registerer.Register(c)
	if err == nil {
		u.registered = append(u.registered, c)
	}
	return err
}

func (u *undoable) undo() {
	for _, c := range u.registered {
		u.Unregister(c)
	}
}

// Register registers all collectors. If one fails, it registers none and returns the
// error.
func (r Registry) Register(collectors ...prometheus.Collector) error {
	if r.Registerer == nil {
		return nil
	}
	to, undo := Undoable(r.Registerer)
	for _, c := range collectors {
		if err := to.Register(c); err != nil {
			undo()
			if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
				return fmt.Errorf("register metric %s: %w (does another pipeline use this registerer? wrap it with prometheus.WrapRegistererWith)", name(taken.NewCollector), err)
			}
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

var fqName = regexp.MustCompile(`fqName: "([^"]*)"`)

// name returns the name of a collector's first metric. [prometheus.Desc] contains it only in its
// text.
func name(c prometheus.Collector) string {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	first := ""
	for d := range descs {
		if found := fqName.FindStringSubmatch(d.String()); first == "" && found != nil {
			first = found[1]
		}
	}
	return first
}
