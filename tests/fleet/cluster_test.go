package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
)

// Three servers with three replicas: the leader of the stream is killed in the middle of a
// storm, twice, and comes back.
func TestLeaderKilledInAStorm(t *testing.T) {
	t.Parallel()
	servers, err := natsd.NewCluster(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, s := range servers {
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		urls = append(urls, s.URL)
	}
	url := strings.Join(urls, ",")
	limits := fleet.Limits{Replicas: 3}
	a := startAgent(t, url, "node-a", agentOptions{limits: limits})
	b := startAgent(t, url, "node-b", agentOptions{limits: limits})
	c := watch(t, url, fleet.WatchOptions{Replay: true}, a, b)
	a.steps(20)
	b.steps(20)
	c.converges()
	gaps := c.gapsSoFar()
	for range 2 {
		storm := make(chan struct{})
		go func() {
			defer close(storm)
			for range 100 {
				a.steps(3)
				b.steps(3)
				time.Sleep(10 * time.Millisecond)
			}
		}()
		time.Sleep(300 * time.Millisecond)
		leader := servers[leaderOf(t, url)]
		leader.Kill()
		<-storm
		c.converges()
		if err := leader.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	watch(t, url, fleet.WatchOptions{Replay: true}, a, b).converges()
	if got := c.gapsSoFar(); got != gaps {
		t.Errorf("%d gaps, want none more than the %d before", got, gaps)
	}
}

// leaderOf returns the index of the server that leads the stream.
func leaderOf(t *testing.T, url string) int {
	t.Helper()
	js := jetStream(t, connect(t, url))
	deadline := time.Now().Add(patience)
	for {
		stream, err := js.Stream(t.Context(), fleet.EventStream)
		if err == nil {
			if info := stream.CachedInfo(); info.Cluster != nil && info.Cluster.Leader != "" {
				return int(info.Cluster.Leader[1] - '0')
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stream has no leader: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
