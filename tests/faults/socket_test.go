package faults_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// socketUnit is the unit on the real clock.
const socketUnit = 40 * time.Millisecond

// TestFaultsOverSocket is a part of the matrix, with each kind at random, on a real unix socket and in real time.
func TestFaultsOverSocket(t *testing.T) {
	seen := make(map[string]bool)
	for n, r := range rows() {
		key := r.Call + string(r.Kind)
		if seen[key] || r.Call == "Version" {
			continue
		}
		seen[key] = true
		m := modes[len(seen)%2]
		if r.onlyEvents() {
			m = modes[1]
		}
		m.unary = strings.HasPrefix(r.Call, "List") && r.Kind != schedule.Panic
		t.Run(fmt.Sprintf("%s/%s/random/%v", r.Call, r.name(), m), func(t *testing.T) {
			t.Parallel()
			s := draw(t, uint64(n), socketUnit)
			f := r.fault(schedule.Random, socketUnit)
			f.From, f.Until = 0, 0 // whatever the machine's pace
			s.Faults = []schedule.Fault{f}
			defer tell(t, s, m)
			path := filepath.Join(t.TempDir(), "cri.sock")
			listener, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			b := newBed(t, s, socketUnit, listener, func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", path)
			}, m)
			b.play()
			b.await(time.Minute)
			p := promised(s, m)
			p.all = false // the first steps may come before the stream
			b.ledger.check(t, b.end(), p)
		})
	}
}

// await waits until the cache is right and the pipeline healthy. Both are
// promised of a list and inspections within their times, which on a busy machine
// are not the first.
func (b *bed) await(patience time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	for {
		asked := time.Now()
		for uid := range b.ledger.pods {
			if _, err := b.pipe.Cache().GetNewerThan(ctx, pleg.PodUID(uid), asked); err != nil && ctx.Err() != nil {
				b.t.Errorf("pod %s is not known anew within %v: %v", uid, patience, err)
			}
		}
		diff := b.differs()
		if ok, _ := b.pipe.Healthy(); ok && diff == "" {
			return
		}
		if ctx.Err() != nil {
			b.t.Errorf("%v after the end the pipeline is not healthy or the cache not right:\n%s", patience, diff)
			return
		}
	}
}
