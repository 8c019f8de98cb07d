package doctor_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestKernelTellsUnreadBytes sends a message that nobody reads, among sockets of other kinds.
func TestKernelTellsUnreadBytes(t *testing.T) {
	for range 64 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		kit.Must(t, err)
		t.Cleanup(func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) })
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	kit.Must(t, err)
	defer l.Close()
	client, err := net.Dial("unix", path)
	kit.Must(t, err)
	defer client.Close()
	served, err := l.Accept()
	kit.Must(t, err)
	defer served.Close()
	unread := func() (bytes int) {
		sockets, err := doctor.UnixSockets()
		kit.Must(t, err)
		for _, s := range sockets {
			if s.Path == path {
				bytes += s.Unread
			}
		}
		return bytes
	}
	if n := unread(); n != 0 {
		t.Errorf("%d bytes are unread before anything was sent", n)
	}
	_, err = served.Write(make([]byte, 1000))
	kit.Must(t, err)
	if n := unread(); n < 1000 {
		t.Errorf("%d bytes are unread, want at least 1000", n)
	}
	_, err = client.Read(make([]byte, 2000))
	kit.Must(t, err)
	if n := unread(); n != 0 {
		t.Errorf("%d bytes are unread after all were read", n)
	}
}

// TestClientDoesNotRead examines a runtime with a client that reads slowly, and a client that does
// not read.
func TestClientDoesNotRead(t *testing.T) {
	dir := t.TempDir() // as /proc
	for file, text := range map[string]string{"7/comm": "agent\n", "7/stat": "7 (agent) T 1", "self/stat": "", "8/comm": "other\n", "8/stat": "8 (other) S 1"} {
		kit.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file), "fd"), 0o700))
		kit.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	kit.Must(t, os.Symlink("socket:[70]", filepath.Join(dir, "7/fd/3")))
	kit.Must(t, os.Symlink("socket:[80]", filepath.Join(dir, "8/fd/3")))
	for name, test := range map[string]struct {
		peer   uint32
		look   [3]int // what is unread at each look
		want   string
		daemon int // its PID, if it does not answer
	}{
		"reads":         {70, [3]int{900, 0, 900}, "OK: ", 0},
		"is slow":       {70, [3]int{900, 800, 900}, "OK: ", 0},
		"stopped":       {70, [3]int{900, 900, 1000}, "PROBLEM: agent (process 7, stopped) does not read what the runtime sends it (1000 B unread)", 0},
		"runs":          {80, [3]int{900, 900, 900}, "WARNING: other (process 8) does not read", 0},
		"is unknown":    {90, [3]int{900, 900, 900}, "WARNING: a client of the runtime does not read", 0},
		"is the daemon": {70, [3]int{900, 900, 900}, "PROBLEM: the daemon at /run/d does not answer: its process 7 is stopped (state T), and the runtime waits for it to read events", 7},
		"is another":    {70, [3]int{900, 900, 900}, "PROBLEM: agent (process 7, stopped) does not read", 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := simulate(t, simruntime.Options{})
				addPod(t, rt, "web-0", "nginx")
				o := serve(t, rt)
				o.Proc = os.DirFS(dir)
				n := -1
				o.Sockets = func() ([]doctor.Socket, error) {
					n++
					return []doctor.Socket{{Inode: 1, Peer: 7}, {Path: strings.TrimPrefix(o.Endpoint, "unix://"), Inode: 2, Peer: test.peer, Unread: test.look[n]}}, nil
				}
				if test.daemon != 0 {
					d := doctor.SilentDaemon("/run/d", "", &pleg.Process{PID: test.daemon, State: "T"})
					o.Ask = func(context.Context) *doctor.Daemon { return d }
				}
				r := doctor.Examine(t.Context(), o)
				if !strings.HasPrefix(r.Verdict, test.want) {
					t.Errorf("verdict %q, want %q", r.Verdict, test.want)
				}
				cause, others := verdict.ClientNotReading, 0
				switch test.daemon {
				case 7:
					cause = verdict.DaemonSilent
				case 9:
					others = 1
				}
				if test.want[0] == 'P' && (r.Findings[0].Cause != cause || len(r.Findings) != 1+others || !strings.HasPrefix(r.Findings[0].Advice, "continue it (kill -CONT 7)")) {
					t.Errorf("finding %+v", r.Findings[0])
				}
			})
		})
	}
}
