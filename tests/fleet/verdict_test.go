package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The verdict of a node comes with its agent: within seconds if it is another one. A node without
// an agent has one too.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	var status atomic.Pointer[pleg.Status]
	well := pleg.Status{Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Pods: 7}}
	status.Store(&well)
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{health: func(context.Context) (pleg.Status, error) {
		if now := status.Load(); now != nil {
			return *now, nil
		}
		return pleg.Status{}, errors.New("no answer")
	}})
	startAgent(t, s.URL, "node-b", agentOptions{})
	states := func() []fleet.Node {
		nodes, err := openStates(t, s.URL).Nodes(t.Context())
		kit.Must(t, err)
		return nodes
	}
	shows := func(severity, cause, pod string) {
		t.Helper()
		began := time.Now()
		until(t, func() error {
			nodes := states()
			if len(nodes) != 2 || nodes[1].Verdict != nil {
				return fmt.Errorf("the nodes are %+v, want node-b without a verdict", nodes)
			}
			v := nodes[0].Verdict
			if v == nil || string(v.Severity) != severity || cause != "" && (string(v.Findings[0].Cause) != cause || v.Findings[0].Pod != pod) {
				return fmt.Errorf("the verdict is %+v, want %s: %s of %q", v, severity, cause, pod)
			}
			return nil
		})
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("%s: %s is known after %v", severity, cause, took)
		}
	}
	until(t, func() error { _, err := fleet.OpenStates(t.Context(), jetStream(t, a.conn), cluster); return err })
	shows("ok", "", "")
	hangs := well
	hangs.Quarantined = []pleg.Quarantined{{UID: "u", Namespace: "shop", Name: "web-0", Since: time.Now().Add(-time.Minute), Hung: 3}}
	status.Store(&hangs)
	shows("problem", "hung container", "shop/web-0")
	status.Store(&well)
	shows("ok", "", "")
	status.Store(nil)
	shows("problem", "node silent", "")
	status.Store(&well)
	shows("ok", "", "")
	a.stop()
	shows("problem", "node silent", "")
}
