package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// announcer is the connection to a runtime with events. Each stream gets those that are sent while it is
// open.
type announcer struct {
	version        *runtimeapi.VersionResponse
	events         chan struct{}
	opened, closed atomic.Int32
}

func (a *announcer) Invoke(_ context.Context, _ string, _, answer any, _ ...grpc.CallOption) error {
	v, ok := answer.(*runtimeapi.VersionResponse)
	if !ok {
		return errors.ErrUnsupported
	}
	v.RuntimeName, v.RuntimeVersion = a.version.GetRuntimeName(), a.version.GetRuntimeVersion()
	return nil
}

func (a *announcer) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	a.opened.Add(1)
	if a.events == nil {
		return nil, errors.ErrUnsupported
	}
	return &announced{ctx: ctx, from: a}, nil
}

type announced struct {
	grpc.ClientStream
	ctx  context.Context //nolint:containedctx // as in the streams of grpc
	from *announcer
}

func (s *announced) Header() (metadata.MD, error) { return nil, nil }
func (s *announced) CloseSend() error             { return nil }
func (s *announced) SendMsg(any) error            { return nil }

func (s *announced) RecvMsg(any) error {
	select {
	case _, open := <-s.from.events:
		if !open {
			return io.EOF
		}
		return nil
	case <-s.ctx.Done():
		s.from.closed.Add(1)
		return s.ctx.Err()
	}
}

// TestSilence uses a runtime on which a start waits. The runtime is asked for its events, and must
// announce changes.
func TestSilence(t *testing.T) {
	containerd2 := &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"}
	const problem = "a client does not read the events of the runtime: starts wait, and none of 2 changes was announced; connected are agent (PID 7), crictl (PID 12)"
	alone, _, _ := strings.Cut(problem, "; connected")
	waiting := []pleg.State{pleg.StateCreated}
	dir := t.TempDir() // the socket has two names, as with /var/run
	kit.Must(t, errors.Join(os.Symlink(".", filepath.Join(dir, "run")), os.Symlink(".", filepath.Join(dir, "var"))))
	for name, test := range map[string]struct {
		version    *runtimeapi.VersionResponse
		containers []pleg.State
		ready      bool
		changes    int
		announces  bool
		opened     int32
		want       string
	}{
		"nothing waits":           {containerd2, []pleg.State{pleg.StateRunning}, true, 3, false, 0, ""},
		"a start waits":           {containerd2, waiting, true, 2, false, 1, problem},
		"a creation waits":        {containerd2, nil, true, 2, false, 1, problem},
		"no sandbox is ready":     {containerd2, nil, false, 3, false, 0, ""},
		"all is announced":        {containerd2, waiting, true, 2, true, 1, ""},
		"sandboxes change":        {containerd2, waiting, true, 2, false, 1, problem},
		"changes go on":           {containerd2, waiting, true, 2, false, 1, strings.Replace(problem, "of 2", "of 5", 1)},
		"a socket shows it":       {containerd2, waiting, true, 2, false, 1, ""},
		"no client is known":      {containerd2, waiting, true, 2, false, 1, alone},
		"no process is known":     {containerd2, waiting, true, 2, false, 1, alone},
		"containers go":           {containerd2, []pleg.State{pleg.StateCreated, pleg.StateExited, pleg.StateExited}, true, 2, false, 1, problem},
		"since when, who knows":   {containerd2, waiting, true, 2, false, 0, ""},
		"no events":               {containerd2, waiting, true, 2, false, 1, ""},
		"the stream ends":         {containerd2, waiting, true, 2, false, 1, ""},
		"one change":              {containerd2, waiting, true, 1, false, 1, ""},
		"an older containerd":     {&runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v1.7.29"}, waiting, true, 3, false, 0, ""},
		"an older one of Debian":  {&runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "1.7.24~ds1"}, waiting, true, 3, false, 0, ""},
		"another runtime's 2.0":   {&runtimeapi.VersionResponse{RuntimeName: "cri-o", RuntimeVersion: "2.0.0"}, waiting, true, 3, false, 0, ""},
		"a runtime that may drop": {&runtimeapi.VersionResponse{RuntimeName: "cri-o", RuntimeVersion: "1.34.0"}, waiting, true, 3, false, 0, ""},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			cache, a := podcache.New(), &announcer{version: test.version, events: make(chan struct{})}
			if name == "no events" {
				a.events = nil
			}
			began := time.Now()
			created := began.Add(time.Second) // 20 s before the look at 21 s
			if name == "since when, who knows" {
				created = time.Time{}
			}
			states, sandboxes := slices.Clone(test.containers), 0
			set := func() {
				p := &pleg.PodStatus{UID: "u", Sandboxes: []*pleg.SandboxStatus{{ID: "s", Ready: test.ready, CreatedAt: created}}}
				for n, state := range states {
					p.Containers = append(p.Containers, &pleg.ContainerStatus{ID: pleg.ContainerID(fmt.Sprint("c", n)), State: state, CreatedAt: created})
				}
				if sandboxes > 0 { // it comes, and becomes ready
					p.Sandboxes = append(p.Sandboxes, &pleg.SandboxStatus{ID: "t", Ready: sandboxes > 1, CreatedAt: created})
				}
				cache.Set("u", p, nil, time.Now())
				if name == "a creation waits" { // its inspections wait too
					cache.Set("u", nil, errors.New("deadline exceeded"), time.Now())
				}
			}
			processes := fs.FS(withSelf(proc))
			if name == "no process is known" {
				processes = nil
			}
			w := host.New(host.Options{Endpoint: "unix://" + filepath.Join(dir, "var"), Proc: processes, Usage: usage, Sockets: func() ([]host.Socket, error) {
				if name == "no client is known" {
					return nil, fs.ErrPermission
				}
				path := filepath.Join(dir, "run")
				return []host.Socket{{Path: path, Peer: 70, Unread: map[bool]int{true: 900}[name == "a socket shows it"]}, {Path: path, Peer: 120}, {Path: path, Peer: 71}, {Path: path, Peer: 80}, {Path: path, Peer: 140}, {Path: "/other", Peer: 130}}, nil
			}})
			set()
			cache.Set("never inspected", nil, errors.New("broken"), began)
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, a, cache) })
			report := func() string {
				synctest.Wait()
				r := pleg.Report{Troubles: []pleg.Trouble{{Subject: "another"}}} // of the client of the runtime
				w.Report(&r)
				for _, found := range r.Troubles {
					if found.Subject == "a client" {
						if waited := time.Since(found.Since); found.Cause != string(verdict.ClientNotReading) || !found.Problem || waited < 5*time.Second || waited > 6*time.Minute {
							t.Errorf("found %+v", found)
						}
						return found.Subject + " " + found.What + found.Detail
					}
				}
				return ""
			}
			time.Sleep(19 * time.Second)
			if got := a.opened.Load(); got > 0 {
				t.Errorf("after 19 s, %d streams were opened", got)
			}
			time.Sleep(2500 * time.Millisecond)
			if got := a.opened.Load(); got != test.opened {
				t.Errorf("after 21 s, %d streams were opened, want %d", got, test.opened)
			}
			time.Sleep(3 * time.Second) // between two looks
			for n := range test.changes {
				switch name {
				case "sandboxes change":
					sandboxes++
				case "containers go":
					states = states[:len(states)-1]
				default:
					states = append(states, pleg.StateExited)
				}
				set()
				if n == 0 && name == "the stream ends" {
					close(a.events)
				}
				if test.announces {
					a.events <- struct{}{}
					test.announces = false // nobody listens any more
				}
				time.Sleep(time.Second)
			}
			if got := report(); got != "" {
				t.Errorf("at once: %q", got)
			}
			for range 6 {
				time.Sleep(time.Second)
				if name == "changes go on" {
					states = append(states, pleg.StateExited)
					set()
				}
			}
			if got := report(); got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
			if got := a.opened.Load(); got != test.opened {
				t.Errorf("%d streams were opened, want %d", got, test.opened)
			}
			time.Sleep(5 * time.Minute)
			if got := report(); got != test.want {
				t.Errorf("5 minutes later: %q, want %q", got, test.want)
			}
			if ended := a.closed.Load(); ended == 1 != (name == "one change") {
				t.Errorf("%d streams were closed after 5 minutes, want one if no event came and the runtime is not silent", ended)
			}
			if test.want == "" {
				return
			}
			select {
			case a.events <- struct{}{}:
			case <-time.After(time.Second):
				t.Fatal("nobody listens to the events")
			}
			if got := report(); got != "" || a.opened.Load() != 1 {
				t.Errorf("an event was announced: %q, %d streams opened", got, a.opened.Load())
			}
			if test.containers == nil { // the changes have ended the wait
				return
			}
			time.Sleep(57 * time.Second)
			before := a.opened.Load()
			time.Sleep(7 * time.Second)
			if after := a.opened.Load(); before != 1 || after != 2 {
				t.Errorf("%d streams were opened within a minute, %d soon after, want another one", before, after)
			}
		})
	}
}

// withSelf adds the PID of this process to the processes of a test.
func withSelf(files fstest.MapFS) fstest.MapFS {
	all := fstest.MapFS{"self": {Data: []byte("8"), Mode: fs.ModeSymlink}, "8/stat": files["8/stat"], "8/fd/3": files["8/fd/3"]}
	for name, file := range files {
		if !strings.HasPrefix(name, "self") {
			all[name] = file
		}
	}
	return all
}
