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
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

// The size of TestScale. "make fleet-scale" sets it.
var (
	scaleNodes = flag.Int("nodes", 20, "the `NUMBER` of nodes")
	scalePods  = flag.Int("pods", 20, "the `NUMBER` of pods of each node")
	scaleConns = flag.Int("connections", 5, "the `NUMBER` of connections that the nodes share")
	scaleRate  = flag.Float64("rate", 25, "`CHANGES` of all nodes each second; one has about three events")
	scaleThree = flag.Bool("three", false, "three servers, each of which keeps everything")
	scaleTime  = flag.Duration("duration", time.Second, "the `TIME` of changes before each fault")
)

// scale is many nodes on a server or three, and a watch that checks its events.
type scale struct {
	t       *testing.T
	servers []*natsd.Server
	url     string
	nodes   []*agent
	changes int
	cpu     [2]time.Duration // of the servers, and of this process
	*consumer
}

// TestScale measures a fleet on one machine, with changes on all nodes and under faults. It prints a row for
// each part. After each part the watch has received everything.
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
	var conns []*nats.Conn
	for range *scaleConns {
		conns = append(conns, connect(t, s.url))
	}
	kit.Must(t, fleet.Create(t.Context(), jetStream(t, conns[0]), cluster, limits))
	s.row("start of all nodes", func() {
		for i := range *scaleNodes {
			o := agentOptions{pods: *scalePods, discard: true, first: *scalePods * 3 / 2, conn: conns[i%len(conns)], seed: uint64(i)}
			s.nodes = append(s.nodes, startAgent(t, s.url, fmt.Sprintf("node-%05d.example.com", i), o))
		}
		s.consumer = watch(t, s.url, fleet.WatchOptions{Replay: true}, s.nodes...)
	})
	late := func() {
		s.cancel()
		s.consumer = watch(t, s.url, fleet.WatchOptions{Replay: true}, s.nodes...)
		for !s.synced() {
			s.change(10 * time.Millisecond)
		}
	}
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"changes", func() { s.change(0) }},
		{"late consumer", late},
		{"server killed, back after 5 s", func() {
			s.servers[0].Kill()
			s.change(5 * time.Second)
			kit.Must(t, s.servers[0].Start(t.Context()))
		}},
		{"late consumer", late},
		{"server stopped for 10 s", func() {
			kit.Must(t, s.servers[0].Pause())
			s.change(10 * time.Second)
			kit.Must(t, s.servers[0].Continue())
		}},
		{"a tenth of the agents restarted", func() {
			gaps := s.gapsSoFar()
			for i := 0; i < len(s.nodes); i += 10 {
				s.nodes[i].restart()
				s.change(10 * time.Millisecond)
				gaps++
			}
			s.eventually(func() error {
				if s.Gaps < gaps {
					return fmt.Errorf("%d Gaps, want %d", s.Gaps, gaps)
				}
				return nil
			})
		}},
		{"late consumer", late},
	} {
		s.change(*scaleTime)
		s.row(part.name, part.run)
	}
}

// row runs a part, waits until the state of the watch is the union of the states, and prints figures.
// On a busy machine, compare the CPU and not the time.
func (s *scale) row(name string, run func()) {
	began, changes, before := time.Now(), s.changes, s.cpu
	run()
	ran := time.Since(began)
	s.rest()
	_, gaps, last := s.got()
	s.cpu = [2]time.Duration{1: use(os.Getpid()).CPU}
	var rss uint64
	for _, server := range s.servers {
		used := use(server.PID())
		s.cpu[0], rss = s.cpu[0]+used.CPU, rss+uint64(used.RSS)
	}
	s.t.Logf("| %s: %d changes in %.1f s | complete after %.1f s | CPU: servers %.1f s, all else %.1f s | RSS: %d MB, %d MB | Gaps %d %v |",
		name, s.changes-changes, ran.Seconds(), max(0, last.Sub(began)).Seconds(), (s.cpu[0] - before[0]).Seconds(), (s.cpu[1] - before[1]).Seconds(),
		rss>>20, use(os.Getpid()).RSS>>20, gaps, s.reasons)
}

// rest waits until the state of the watch is the union of the states. The nodes rest meanwhile.
func (s *scale) rest() {
	s.t.Helper()
	agreed := 0
	s.eventually(func() error {
		// Twice, because a node that agreed may have begun a replay since.
		for ; agreed < 2*len(s.nodes); agreed++ {
			n := s.nodes[agreed%len(s.nodes)]
			truth := n.node.Truth()
			if err := errors.Join(s.isSynced(), s.CompareNode(n.name, truth)); err != nil {
				if agreed >= len(s.nodes) {
					agreed -= len(s.nodes)
				}
				return err
			}
			s.Forget(n.name, truth)
		}
		return nil
	})
}

func (s *scale) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Synced
}

// change makes changes for a time at the rate of all nodes.
func (s *scale) change(duration time.Duration) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	budget, last, end := 0.0, time.Now(), time.Now().Add(duration)
	for now := range tick.C {
		for budget += now.Sub(last).Seconds() * *scaleRate; budget > 0; budget-- {
			s.nodes[rand.IntN(len(s.nodes))].steps(1)
			s.changes++
		}
		if last = now; now.After(end) {
			return
		}
	}
}

// use returns the usage of a process.
func use(pid int) process.Use {
	use, _ := process.UseOf(pid) // a process that has ended counts as zero
	return use
}
