package faults_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// socketUnit is the unit on the real clock.
const socketUnit = 40 * time.Millisecond

// TestFaultsOverSocket runs a part of the matrix, each kind at random, on a real
// unix socket in real time.
func TestFaultsOverSocket(t *testing.T) {
	seen := make(map[string]bool)
	// These tests mostly wait, so more of them run at once than t.Parallel allows.
	group := pool.New().WithMaxGoroutines(12)
	defer group.Wait()
	for n, r := range rows() {
		key := r.RPC + r.Kind()
		if seen[key] || r.RPC == "Version" {
			continue
		}
		seen[key] = true
		fit := r.modes()
		s := scenario{seed: uint64(n), pods: 3, containers: 2, rate: 3, mode: fit[len(seen)%len(fit)]}
		fault := r.at(simruntime.FaultRandom, socketUnit)
		fault.From, fault.Until = 0, 0 // independent of the machine's speed
		s.faults = []simruntime.Fault{fault}
		group.Go(func() {
			t.Run(fmt.Sprintf("%s/%s/random/%v", r.RPC, r.name(), s.mode), func(t *testing.T) { runOverSocket(t, s) })
		})
	}
}

func runOverSocket(t *testing.T, s scenario) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, s, socketUnit, listener, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
	f.play()
	f.waitForCache(time.Minute)
	p := promised(s)
	p.All = false // the first changes may come before the stream
	f.end(p)
}

// waitForCache waits until the cache is right and the pipeline healthy. Both need
// a list and inspections within their timeouts, which on a busy machine may take
// several tries.
func (f *fixture) waitForCache(patience time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		asked := time.Now()
		for uid := range f.history.Pods() {
			if _, err := f.Cache().GetNewerThan(ctx, uid, asked); err != nil && ctx.Err() != nil {
				f.t.Errorf("pod %s has no newer status within %v: %v", uid, patience, err)
			}
		}
		diff := f.cacheDiff()
		if ok, _ := f.Healthy(); ok && diff == "" {
			return
		}
		if ctx.Err() != nil {
			f.t.Errorf("%v after the end the pipeline is unhealthy or the cache wrong:\n%s", patience, diff)
			return
		}
	}
}
