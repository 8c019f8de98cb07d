package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// load makes events for the duration, in quarters. Each quarter but the first ends with a
// fault.
func (f *virtualFleet) load(ctx context.Context) error {
	f.quantiles()
	quarter := f.o.duration / 4
	began := time.Now()
	f.step(ctx, quarter)
	p50, p99 := f.quantiles()
	report("events a second, made and delivered, without faults", "%.0f", float64(f.made)/time.Since(began).Seconds())
	report("delay from event to watch", "p50 %v, p99 %v", p50.Round(100*time.Microsecond), p99.Round(100*time.Microsecond))
	report("server: memory (RSS), stored", "%s, %.0f MB", rss(f.server.Pid()), f.stored(ctx))
	report("all nodes and the watch, in one process: memory (RSS)", "%s", rss(os.Getpid()))
	faults := []struct {
		name string
		run  func() error
	}{
		{"server killed, back after 5 s", func() error {
			f.server.Kill()
			f.step(ctx, 5*time.Second)
			return f.server.Start(ctx)
		}},
		{"server stopped for 10 s", func() error {
			if err := f.server.Pause(); err != nil {
				return err
			}
			f.step(ctx, 10*time.Second)
			return f.server.Continue()
		}},
		{"a tenth of the agents restarted", func() error { return f.restartAgents(ctx) }},
	}
	for _, fault := range faults {
		f.step(ctx, quarter)
		if err := fault.run(); err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
		ended := time.Now()
		at, err := f.converged(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
		report(fault.name+": until the watch has everything", "%.1f s", max(0, at.Sub(ended)).Seconds())
	}
	p50, p99 = f.quantiles()
	report("delay from event to watch, with faults", "p50 %v, p99 %v", p50.Round(time.Millisecond), p99.Round(time.Millisecond))
	report("server at the end: memory (RSS), stored", "%s, %.0f MB", rss(f.server.Pid()), f.stored(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	report("events checked, Gaps", "%d, %d", f.seen.Events, f.seen.Gaps)
	return nil
}

func (f *virtualFleet) restartAgents(ctx context.Context) error {
	for i := 0; i < len(f.nodes); i += 10 {
		f.stops[i]()
		node, err := f.nodes[i].Restart()
		if err != nil {
			return err
		}
		f.nodes[i] = node
		if err := f.publish(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// stored returns the size of all streams in MB.
func (f *virtualFleet) stored(ctx context.Context) float64 {
	js, err := jetstream.New(f.conns[f.o.connections])
	if err != nil {
		return 0
	}
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return 0
	}
	return float64(info.Store) / 1e6
}

// rss returns the memory of a process.
func rss(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
