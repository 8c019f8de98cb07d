package fleet_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

// The size of TestScale. "make fleet-scale" sets it.
var (
	scaleNodes = flag.Int("nodes", 20, "the `NUMBER` of nodes")
	scalePods  = flag.Int("pods", 20, "the `NUMBER` of pods of each node")
	scaleConns = flag.Int("connections", 5, "the `NUMBER` of connections that the nodes share")
	scaleRate  = flag.Float64("rate", 3.75, "`EVENTS` of a node each second")
	scaleThree = flag.Bool("three", false, "three servers, each of which keeps everything")
	scaleTime  = flag.Duration("duration", 2*time.Second, "the `TIME` under load")
)

// scale is many nodes on a server or three, and a watch that checks what it gets.
type scale struct {
	t       *testing.T
	servers []*natsd.Server
	url     string
	conns   []*nats.Conn
	nodes   []*agent
	made    int // events of the load
	atStart int // Gaps of the nodes that began after the watch
	cpu     [2]time.Duration
	*consumer
}

// TestScale measures a fleet on one machine, under load and under faults. It prints a row for each
// figure.
func TestScale(t *testing.T) {
	t.Parallel()
	s := &scale{t: t}
	limits := fleet.Limits{}
	if *scaleThree {
		s.servers, limits.Replicas = startCluster(t), 3
	} else {
		s.servers = []*natsd.Server{startServer(t, "")}
	}
	s.url = urlOf(s.servers...)
	began := time.Now()
	for range *scaleConns {
		s.conns = append(s.conns, connect(t, s.url))
	}
	kit.Must(t, fleet.Create(t.Context(), jetStream(t, s.conns[0]), cluster, limits))
	for i := range *scaleNodes {
		o := agentOptions{pods: *scalePods, discard: true, first: *scalePods * 3 / 2, conn: s.conns[i%len(s.conns)], seed: uint64(i)}
		s.nodes = append(s.nodes, startAgent(t, s.url, fmt.Sprintf("node-%05d.example.com", i), o))
	}
	s.consumer = watch(t, s.url, fleet.WatchOptions{Replay: true}, s.nodes...)
	s.rest(s.consumer, "start of all nodes", began)
	s.rowCPU("start of all nodes")
	s.atStart = s.gapsSoFar()
	s.load()
	s.late()
}

// row prints a figure.
func (s *scale) row(what, format string, args ...any) {
	s.t.Logf("| %s | %s |", what, fmt.Sprintf(format, args...))
}

// rowCPU prints the CPU since the last call: it says more than the time does on a busy machine.
func (s *scale) rowCPU(what string) {
	before := s.cpu
	s.cpu = [2]time.Duration{1: use(os.Getpid()).CPU}
	for _, server := range s.servers {
		s.cpu[0] += use(server.PID()).CPU
	}
	s.row(what+": CPU of the servers; of all nodes and the watch", "%.1f s; %.1f s", (s.cpu[0] - before[0]).Seconds(), (s.cpu[1] - before[1]).Seconds())
}

// rest waits until a consumer has the union of the states, and prints how long after a time its last
// event came. The nodes rest meanwhile.
func (s *scale) rest(c *consumer, what string, since time.Time) {
	s.t.Helper()
	agreed := 0
	c.eventually(func() error {
		// Twice, because a node that agreed may have begun a replay since.
		for ; agreed < 2*len(s.nodes); agreed++ {
			n := s.nodes[agreed%len(s.nodes)]
			truth := n.node.Truth()
			if err := errors.Join(c.isSynced(), c.CompareNode(n.name, truth)); err != nil {
				if agreed >= len(s.nodes) {
					agreed -= len(s.nodes)
				}
				return err
			}
			c.Forget(n.name, truth)
		}
		return nil
	})
	_, _, last := c.got()
	s.row(what+": until the watch has everything", "%.1f s", max(0, last.Sub(since)).Seconds())
}

// load makes events for the duration, in quarters. Each but the first ends with a fault.
func (s *scale) load() {
	s.takeDelays()
	quarter, began := *scaleTime/4, time.Now()
	s.step(quarter)
	s.row("events a second, made and delivered", "%.0f", float64(s.made)/time.Since(began).Seconds())
	s.rowCPU(fmt.Sprintf("%d events", s.made))
	delays := s.takeDelays()
	s.row("delay from event to watch", "p50 %v, p99 %v", delays.Quantile(0.5).Round(100*time.Microsecond), delays.Quantile(0.99).Round(100*time.Microsecond))
	for _, fault := range []struct {
		name   string
		inject func() error
	}{
		{"server killed, back after 5 s", func() error {
			s.servers[0].Kill()
			s.step(5 * time.Second)
			return s.servers[0].Start(s.t.Context())
		}},
		{"server stopped for 10 s", func() error {
			if err := s.servers[0].Pause(); err != nil {
				return err
			}
			s.step(10 * time.Second)
			return s.servers[0].Continue()
		}},
	} {
		s.step(quarter)
		kit.Must(s.t, fault.inject())
		s.rest(s.consumer, fault.name, time.Now())
	}
	s.step(quarter)
	s.restart()
	stored, err := jetStream(s.t, s.conns[0]).AccountInfo(s.t.Context())
	kit.Must(s.t, err)
	for _, server := range s.servers {
		s.row("server: memory (RSS), stored by all", "%d MB, %d MB", use(server.PID()).RSS>>20, stored.Store>>20)
	}
	s.row("all nodes and the watch, in one process: memory (RSS)", "%d MB", use(os.Getpid()).RSS>>20)
	s.row("Gaps: at the start; all by their reason", "%d, %v", s.atStart, s.reasons)
}

// restart restarts a tenth of the agents.
func (s *scale) restart() {
	began, gaps := time.Now(), s.gapsSoFar()
	for i := 0; i < len(s.nodes); i += 10 {
		s.nodes[i].restart()
		gaps++
	}
	s.eventually(func() error {
		if s.Gaps < gaps {
			return fmt.Errorf("%d Gaps, want %d", s.Gaps, gaps)
		}
		return nil
	})
	s.rest(s.consumer, "a tenth of the agents restarted", began)
}

// step makes as many events as all nodes make in a time.
func (s *scale) step(duration time.Duration) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	budget, last, end := 0.0, time.Now(), time.Now().Add(duration)
	for now := range tick.C {
		budget += now.Sub(last).Seconds() * *scaleRate * float64(len(s.nodes))
		last = now
		for budget > 0 {
			n := s.nodes[rand.IntN(len(s.nodes))].node.Step()
			budget -= float64(n)
			s.made += n
		}
		if now.After(end) {
			return
		}
	}
}

// late measures how long a consumer takes that comes in the middle of the load.
func (s *scale) late() {
	began := time.Now()
	c := watch(s.t, s.url, fleet.WatchOptions{Replay: true}, s.nodes...)
	synced := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.Synced
	}
	for !synced() {
		s.step(10 * time.Millisecond)
	}
	s.row("late consumer: until Synced", "%.1f s", time.Since(began).Seconds())
	s.rest(c, "late consumer in the load", began)
	c.cancel()
}

// takeDelays returns the delays since the last call.
func (c *consumer) takeDelays() load.Times {
	c.mu.Lock()
	defer c.mu.Unlock()
	delays := c.delays
	c.delays = nil
	return delays
}

// use returns what a process uses.
func use(pid int) process.Use {
	use, _ := process.UseOf(pid) // it counts as nothing
	return use
}
