package faultmatrix_test

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
			b.await(20 * time.Second)
			p := promised(s, m)
			p.all = false // the first steps may come before the stream
			b.judge(p)
		})
	}
}

// await waits until the cache is right and no change is under way.
func (b *bed) await(patience time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	asked := time.Now()
	for uid := range b.ledger.pods {
		if _, err := b.pipe.Cache().GetNewerThan(ctx, pleg.PodUID(uid), asked); err != nil && ctx.Err() != nil {
			b.t.Errorf("pod %s is not known anew within %v: %v", uid, patience, err)
		}
	}
	if diff := b.differs(); diff != "" {
		b.t.Errorf("the cache is not right after a list of everything:\n%s", diff)
	}
}
