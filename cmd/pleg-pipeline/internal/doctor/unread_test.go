package doctor_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestClientDoesNotRead examines a runtime with a stopped client that does not read. If it is the
// daemon, that is one trouble.
func TestClientDoesNotRead(t *testing.T) {
	const alone = "agent does not read from the runtime for at least 9.5s: agent, PID 7, is stopped by a signal; 900 bytes are unread"
	for name, test := range map[string]struct {
		daemon int  // its PID, if it does not answer
		both   bool // another client does not read
		hangs  bool // a pod hangs, too
		want   string
		causes []verdict.Cause
	}{
		"an agent": {0, false, false, "PROBLEM: " + alone, []verdict.Cause{verdict.ClientNotReading}},
		"the daemon": {
			7, false, false, "PROBLEM: the daemon at /run/d does not answer: its process 7 is stopped (state T), and the runtime waits for it to read events",
			[]verdict.Cause{verdict.DaemonSilent},
		},
		"and a pod hangs": {
			7, false, true, "PROBLEM: the daemon at /run/d does not answer: its process 7 is stopped (state T), and the runtime waits for it to read events",
			[]verdict.Cause{verdict.DaemonSilent, verdict.HungContainer},
		},
		"the daemon and another": {7, true, false, "PROBLEM: " + strings.Replace(alone, "agent does", "agent and 1 more client do", 1), []verdict.Cause{verdict.ClientNotReading, verdict.DaemonSilent}},
		"an unknown client":      {7, false, false, "WARNING: the daemon at /run/d does not answer: its process 7 is stopped (state T)", []verdict.Cause{verdict.DaemonSilent, verdict.ClientNotReading}},
		"another":                {9, false, false, "PROBLEM: " + alone, []verdict.Cause{verdict.ClientNotReading, verdict.DaemonSilent}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := simruntime.New(simruntime.Options{})
			addPod(rt, "web-0", "nginx")
			o := serve(t, rt)
			o.Host.Proc = fstest.MapFS{"self/stat": {}, "7/stat": {Data: []byte("7 (agent) T 1")}, "7/fd/3": {Data: []byte("socket:[70]"), Mode: fs.ModeSymlink}}
			if name == "an unknown client" {
				o.Host.Proc = fstest.MapFS{"self/stat": {}}
			}
			if test.hangs {
				db := addPod(rt, "db-0", "postgres")
				rt.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: db.UID, Hang: true})
			}
			o.Host.Sockets = func() ([]host.Socket, error) {
				agent := host.Socket{Path: strings.TrimPrefix(o.Endpoint, "unix://"), Peer: 70, Unread: 900}
				if other := agent; test.both {
					other.Peer = 71
					return []host.Socket{agent, other}, nil
				}
				return []host.Socket{agent}, nil
			}
			if test.daemon != 0 {
				d := doctor.SilentDaemon("/run/d", "", &nodestate.Process{PID: test.daemon, State: "T"})
				o.Ask = func(context.Context) *doctor.Daemon { return d }
			}
			r := doctor.Examine(t.Context(), o)
			if r.Verdict != test.want || len(r.Findings) != len(test.causes) {
				t.Fatalf("verdict %q of %d, want %q", r.Verdict, len(r.Findings), test.want)
			}
			for i, cause := range test.causes {
				if r.Findings[i].Cause != cause {
					t.Errorf("finding %+v, want %s", r.Findings[i], cause)
				}
			}
			advice, evidence := r.Findings[0].Advice, r.Findings[0].Evidence
			if name == "an unknown client" {
				evidence = r.Findings[1].Evidence
			}
			if !strings.HasPrefix(advice, "continue it (kill -CONT 7)") || !strings.Contains(evidence, "900 bytes are unread") || name == "the daemon" && !strings.HasSuffix(evidence, "(state T); "+alone) {
				t.Errorf("advice %q, evidence %q", advice, evidence)
			}
		})
	}
}

// TestDaemonKnowsTheClient requires that a client has not read for as long as the daemon knows, although only
// the doctor sees its process.
func TestDaemonKnowsTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{})
		addPod(rt, "web-0", "nginx")
		o := serve(t, rt)
		o.Host.Proc = fstest.MapFS{"self/stat": {}, "7/stat": {Data: []byte("7 (agent) T 1")}, "7/fd/3": {Data: []byte("socket:[70]"), Mode: fs.ModeSymlink}}
		o.Host.Sockets = func() ([]host.Socket, error) {
			return []host.Socket{{Path: strings.TrimPrefix(o.Endpoint, "unix://"), Peer: 70, Unread: 900}}, nil
		}
		since := time.Now().Add(-3 * time.Minute)
		o.Ask = func(context.Context) *doctor.Daemon {
			s := pleg.Status{At: time.Now(), Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Period: time.Second, Pods: 1}}
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Unread = []nodestate.Unread{{Since: since, Bytes: 900}} })
			return doctor.NewDaemon("/run/d", s)
		}
		r := doctor.Examine(t.Context(), o)
		if len(r.Findings) != 1 || r.Findings[0].Cause != verdict.ClientNotReading || !r.Findings[0].Since.Equal(since) || r.Findings[0].Subject != "agent" {
			t.Errorf("verdict %q of %+v, want agent since %v alone", r.Verdict, r.Findings, since)
		}
	})
}
