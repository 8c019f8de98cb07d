package shim_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/shim"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const (
	runc   = `"runtimeType": "io.containerd.runc.v2", "pid": 41, `
	crio   = `"sandboxID": "s", "pid": 41, `
	folder = "kubepods/podu1/c1/"
	fails  = "fails" // a handler that the runtime does not tell
)

// changing are cgroups, one of which has other events when it is read again.
type changing struct {
	fstest.MapFS
	reads map[string]int
	later string
}

func (c changing) ReadFile(name string) ([]byte, error) {
	if c.reads[name]++; c.reads[name] > 1 {
		return []byte(c.later), nil
	}
	return c.MapFS.ReadFile(name)
}

// TestFindsLostEnds uses a running container with and without a process. Only a container
// that has certainly ended is reported.
func TestFindsLostEnds(t *testing.T) {
	busy, empty := &fstest.MapFile{Data: []byte("populated 1\nfrozen 0\n")}, &fstest.MapFile{Data: []byte("populated 0\nfrozen 0\n")}
	const slice = "kubepods-burstable-podu1.slice:cri-containerd:"
	const inSlice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice/cri-containerd-"
	nothing := fstest.MapFS{folder + "cgroup.events": empty}
	host := fstest.MapFS{"self/ns/pid": {Data: []byte("pid:[4026531836]"), Mode: fs.ModeSymlink}}
	elsewhere := fstest.MapFS{"self/ns/pid": {Data: []byte("pid:[4026532441]"), Mode: fs.ModeSymlink}}
	with := func(files fstest.MapFS, name, data string) fstest.MapFS {
		more := fstest.MapFS{name: {Data: []byte(data)}}
		maps.Copy(more, files)
		return more
	}
	binary := func(name string) string { return runc + `"runtimeOptions": {"binary_name": "` + name + `"}, ` }
	for name, test := range map[string]struct {
		cgroup        string // if empty, that of folder
		info, handler string
		cgroups       fs.FS
		proc          fs.FS
		lost          bool
	}{
		"systemd, with a process":    {slice + "c1", runc, "", fstest.MapFS{inSlice + "c1.scope/cgroup.events": busy}, nil, false},
		"systemd, without a process": {slice + "c1", runc, "", fstest.MapFS{inSlice + "c1.scope/cgroup.events": empty}, nil, true},
		"systemd, its scope is gone": {slice + "c1", runc, "", fstest.MapFS{inSlice + "c2.scope/cgroup.events": busy}, host, true},
		"systemd, all is elsewhere":  {slice + "c1", runc, "", fstest.MapFS{"kubepods.slice/cgroup.events": busy}, host, false},
		"a scope whose process runs": {slice + "c1", runc, "", fstest.MapFS{inSlice + "c2.scope/cgroup.events": busy}, with(host, "41/stat", "41 (a) S 1"), false},
		"a scope with another's":     {slice + "c1", runc, "", fstest.MapFS{inSlice + "c1.scope/cgroup.events": busy}, host, false},
		"systemd, another namespace": {slice + "c1", runc, "", fstest.MapFS{inSlice + "c2.scope/cgroup.events": busy}, elsewhere, false},
		"systemd, without a PID":     {slice + "c1", `"runtimeType": "io.containerd.runc.v2", `, "", fstest.MapFS{inSlice + "c2.scope/cgroup.events": busy}, host, false},
		"systemd, without a name":    {"a.slice:x", runc, "", fstest.MapFS{"a.slice/x-.scope/cgroup.events": empty}, host, false},
		"cgroupfs, it is gone":       {"", runc, "", fstest.MapFS{"kubepods/podu1/c2/cgroup.events": busy}, host, false},
		"cgroupfs, with a process":   {"", runc, "", fstest.MapFS{folder + "cgroup.events": busy}, nil, false},
		"cgroupfs, without one":      {"", runc, "", nothing, host, true},
		"and without a PID":          {"", `"runtimeType": "io.containerd.runc.v2", `, "", nothing, host, true},
		"v1, with a process":         {"", runc, "", fstest.MapFS{"pids/" + folder + "cgroup.procs": {Data: []byte("41\n")}}, nil, false},
		"v1, its scope is gone":      {slice + "c1", runc, "", fstest.MapFS{"pids/" + inSlice + "c2.scope/cgroup.procs": {Data: []byte("42\n")}}, host, true},
		"v1, with another's":         {slice + "c1", runc, "", fstest.MapFS{"pids/" + inSlice + "c1.scope/cgroup.procs": {Data: []byte("42\n")}}, host, false},
		"v1, without one":            {"", runc, "", fstest.MapFS{"pids/" + folder + "cgroup.procs": {}, "pids/" + folder + "init/cgroup.procs": {}}, nil, true},
		"v1, in a child":             {"", runc, "", fstest.MapFS{"pids/" + folder + "cgroup.procs": {}, "pids/" + folder + "root/init.scope/cgroup.procs": {Data: []byte("41\n")}}, nil, false},
		"in another namespace":       {"", runc, "", fstest.MapFS{}, nil, false},
		"no cgroup is reported":      {"/", runc, "", fstest.MapFS{"cgroup.events": empty}, nil, false},
		"a strange path":             {"../../etc:x", runc, "", fstest.MapFS{"cgroup.events": empty}, nil, false},
		"an exit under way":          {"", runc, "", changing{nothing, make(map[string]int), "populated 1\n"}, nil, false},
		"an end between two answers": {"", runc, "", changing{fstest.MapFS{folder + "cgroup.events": busy}, make(map[string]int), "populated 0\n"}, nil, false},
		"in another cgroup":          {"", runc, "", nothing, with(host, "41/stat", "41 (a) b) S 1"), false},
		"a zombie":                   {"", runc, "", nothing, with(host, "41/stat", "41 (a) b) Z 1"), true},
		"a PID of another type":      {"", `"runtimeType": "io.containerd.runc.v2", "pid": "41", `, "", nothing, host, false},
		"runc by name":               {"", binary("runc"), "runc", nothing, host, true},
		"crun":                       {"", binary("/usr/bin/crun"), "crun", nothing, host, true},
		"NVIDIA's":                   {"", binary("nvidia-container-runtime"), "nvidia", nothing, host, true},
		"youki":                      {"", binary("youki"), "youki", nothing, host, true},
		"an older type":              {"", `"runtimeType": "io.containerd.runc.v1", "pid": 41, `, "", nothing, host, true},
		"the oldest type":            {"", `"runtimeType": "io.containerd.runtime.v1.linux", "pid": 41, `, "", nothing, host, true},
		"Sysbox":                     {"", binary("/usr/bin/sysbox-runc"), "sysbox", nothing, host, false},
		"gVisor called as runc":      {"", binary("/usr/local/bin/runsc"), "", nothing, host, false},
		"gVisor":                     {"", `"runtimeType": "io.containerd.runsc.v1", `, "gvisor", nothing, host, false},
		"Kata":                       {"", `"runtimeType": "io.containerd.kata.v2", "pid": 41, `, "kata", nothing, host, false},
		"zeropod":                    {"", `"runtimeType": "io.containerd.zeropod.v2", "pid": 41, `, "zeropod", nothing, host, false},
		"another, as the default":    {"", `"runtimeType": "io.containerd.zeropod.v2", "pid": 41, `, "", nothing, host, false},
		"CRI-O, its process ended":   {"", crio, "", nothing, host, true},
		"CRI-O, runc by name":        {"", crio, "runc", nothing, host, true},
		"CRI-O, crun by name":        {"", crio, "crun", nothing, host, true},
		"CRI-O, its process runs":    {"", crio, "", nothing, with(host, "41/stat", "41 (conmon) S 1"), false},
		"CRI-O, other namespace":     {"", crio, "", nothing, elsewhere, false},
		"CRI-O, no handler known":    {"", crio, fails, nothing, host, false},
		"CRI-O, no process known":    {"", "", "", nothing, host, false},
		"CRI-O, Kata":                {"", crio, "kata", nothing, host, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			if test.cgroup == "" {
				test.cgroup = "/" + folder
			}
			r := &verboseRuntime{handler: test.handler, info: `{` + test.info + `"runtimeSpec": {"linux": {"cgroupsPath": "` + test.cgroup + `"}}}`}
			if test.proc == nil {
				test.proc = fstest.MapFS{}
			}
			got := stuckLater(t, shim.Options{Proc: test.proc, Cgroups: test.cgroups, Follower: kit.Follower{}}, r)
			if len(got) > 0 != test.lost || test.lost && (got[0].ID != "c1" || got[0].Container != "nginx" || got[0].Shim != nil) {
				t.Errorf("found %+v, want a lost end: %t", got, test.lost)
			}
		})
	}
}

// stuckLater returns the troubles that a watcher finds within nine seconds. The runtime calls the container
// running.
func stuckLater(t *testing.T, o shim.Options, r grpc.ClientConnInterface) []nodestate.Stuck {
	t.Helper()
	found, _ := stuckWithin(t, 9*time.Second, o, r)
	return found
}

// stuckWithin also returns when lists of the pod were requested since then.
func stuckWithin(t *testing.T, most time.Duration, o shim.Options, r grpc.ClientConnInterface) (found []nodestate.Stuck, lists []time.Duration) {
	t.Helper()
	n, began := &node{cache: podcache.New()}, time.Now()
	w := shim.New(o)
	kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, r) })
	for range most / time.Second {
		n.cache.Set("u", &pleg.PodStatus{
			UID: "u", Namespace: "shop", Name: "web-0", Sandboxes: []*pleg.SandboxStatus{{ID: "s", Ready: true}},
			Containers: []*pleg.ContainerStatus{{ID: "c1", Name: "nginx", State: pleg.StateRunning}},
		}, nil, time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
	}
	for _, at := range n.lists {
		lists = append(lists, at.Sub(began))
	}
	return w.Stuck(), lists
}

// Forty lost ends at once cost no more than 32 calls in one look, and all are found.
func TestManyLostEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &verboseRuntime{info: `{` + runc + `"runtimeSpec": {"linux": {"cgroupsPath": "/` + folder + `"}}}`}
		n := &node{cache: podcache.New()}
		w := shim.New(shim.Options{Proc: fstest.MapFS{}, Cgroups: fstest.MapFS{folder + "cgroup.events": {Data: []byte("populated 0\n")}}, Follower: kit.Follower{}})
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, r) })
		for range 15 {
			before := r.calls
			pod := &pleg.PodStatus{UID: "u", Namespace: "shop", Name: "web-0", Sandboxes: []*pleg.SandboxStatus{{ID: "s", Ready: true}}}
			for i := range 40 {
				pod.Containers = append(pod.Containers, &pleg.ContainerStatus{ID: pleg.ContainerID(fmt.Sprint("c", i)), State: pleg.StateRunning})
			}
			n.cache.Set("u", pod, nil, time.Now())
			time.Sleep(time.Second)
			synctest.Wait()
			if made := r.calls - before; made > 32 {
				t.Errorf("%d calls in one look", made)
			}
		}
		if found := len(w.Stuck()); found != 40 {
			t.Errorf("%d lost ends are found, want 40", found)
		}
	})
}

// A container that runs without a process is asked for twice, and its process is sought on.
func TestStartsAfterTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &verboseRuntime{info: `{` + runc + `"runtimeSpec": {"linux": {"cgroupsPath": "/` + folder + `"}}}`}
		n := &node{cache: podcache.New()}
		n.files.Store(&fstest.MapFS{"self/stat": {}})
		n.set(map[int][]string{10: shimIn("S"), 11: inC1("S")})
		n.followed = n.following()
		w := shim.New(shim.Options{Proc: n, Follower: n.followed, Cgroups: fstest.MapFS{folder + "cgroup.events": {Data: []byte("populated 1\n")}}})
		n.running(pleg.StateRunning)
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, r) })
		time.Sleep(30500 * time.Millisecond)
		n.set(map[int][]string{12: inC2})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if r.calls != 2 || !n.followed.pids[12] || len(w.Stuck()) > 0 {
			t.Errorf("%d calls, following %v, found %+v", r.calls, n.followed.pids, w.Stuck())
		}
	})
}

// verboseRuntime is the connection to a runtime with a container that it calls running until ends. It does
// not answer before begins, or only statuses of containers.
type verboseRuntime struct {
	grpc.ClientConnInterface
	handler, info string
	begins, ends  time.Time
	partly        bool
	calls         int
}

func (r *verboseRuntime) Invoke(ctx context.Context, _ string, request, answer any, _ ...grpc.CallOption) error {
	r.calls++
	_, ofSandbox := request.(*runtimeapi.PodSandboxStatusRequest)
	if time.Now().Before(r.begins) && (ofSandbox || !r.partly) {
		asked := time.Now()
		<-ctx.Done()
		if took := time.Since(asked); took != 2*time.Second {
			panic(fmt.Sprint("waited for ", took))
		}
		return ctx.Err()
	}
	switch a := answer.(type) {
	case *runtimeapi.ContainerStatusResponse:
		if of := request.(*runtimeapi.ContainerStatusRequest); !strings.HasPrefix(of.ContainerId, "c") || !of.Verbose {
			return fs.ErrInvalid
		}
		a.Status, a.Info = &runtimeapi.ContainerStatus{Id: "c1", State: runtimeapi.ContainerState_CONTAINER_RUNNING}, map[string]string{"info": r.info}
		if !r.ends.IsZero() && !time.Now().Before(r.ends) {
			a.Status.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
	case *runtimeapi.PodSandboxStatusResponse:
		if request.(*runtimeapi.PodSandboxStatusRequest).PodSandboxId != "s" || r.handler == fails {
			return fs.ErrInvalid
		}
		a.Status = &runtimeapi.PodSandboxStatus{RuntimeHandler: r.handler}
	}
	return nil
}

// TestDuringAnEnd uses a container that ends while the daemon begins: the runtime reports the end at
// the next question, and no end is lost.
func TestDuringAnEnd(t *testing.T) {
	for name, after := range map[string]time.Duration{"before the first look": 0, "between two looks": 1500 * time.Millisecond, "later": time.Minute} {
		kit.Bubble(t, name, func(t *testing.T) {
			r := &verboseRuntime{info: `{` + runc + `"runtimeSpec": {"linux": {"cgroupsPath": "/` + folder + `"}}}`, ends: time.Now().Add(after)}
			cgroups := fstest.MapFS{folder + "cgroup.events": {Data: []byte("populated 0\n")}}
			got := stuckLater(t, shim.Options{Proc: fstest.MapFS{}, Cgroups: cgroups, Follower: kit.Follower{}}, r)
			if len(got) > 0 != (after == time.Minute) {
				t.Errorf("found %+v", got)
			}
		})
	}
}

// A runtime whose lists fail is not asked for statuses.
func TestAsksNoBusyRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &verboseRuntime{}
		n, _ := many(20, false)
		w := shim.New(shim.Options{Proc: fstest.MapFS{}, Cgroups: fstest.MapFS{}, Follower: n.followed})
		n.status.Store(&pleg.Status{At: time.Now(), Relist: pleg.RelistStatus{Failures: 1}})
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, r) })
		for _, asked := range []bool{false, true} {
			time.Sleep(time.Minute)
			synctest.Wait()
			if r.calls > 0 != asked {
				t.Errorf("%d calls, want some: %t", r.calls, asked)
			}
			n.status.Store(nil)
		}
	})
}

// TestAsksAgain uses a runtime that does not answer while the daemon begins: the lost end is found once it
// does, and a container that runs elsewhere costs two answers.
func TestAsksAgain(t *testing.T) {
	for name, test := range map[string]struct {
		info         string
		partly, lost bool
	}{
		"lost": {runc, false, true}, "elsewhere": {runc, false, false}, "no sandbox at first": {crio, true, true},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			began := time.Now()
			r := &verboseRuntime{info: `{` + test.info + `"runtimeSpec": {"linux": {"cgroupsPath": "/` + folder + `"}}}`, begins: time.Now().Add(6 * time.Second), partly: test.partly}
			cgroups := fstest.MapFS{folder + "cgroup.events": {Data: []byte("populated 0\n")}}
			if !test.lost {
				clear(cgroups)
			}
			proc := fstest.MapFS{"self/ns/pid": {Data: []byte("pid:[4026531836]"), Mode: fs.ModeSymlink}}
			got, lists := stuckWithin(t, 4*time.Minute, shim.Options{Proc: proc, Cgroups: cgroups, Follower: kit.Follower{}}, r)
			if len(got) > 0 != test.lost || r.calls > 5 && !test.partly {
				t.Errorf("found %+v with %d calls", got, r.calls)
			}
			if test.lost && (len(lists) < 5 || lists[0] != got[0].Since.Sub(began)+5*time.Second || lists[1]-lists[0] != 10*time.Second) || !test.lost && len(lists) > 0 {
				t.Errorf("lists were requested at %v, want one 5 s after %v, and then one each 10 s", lists, got)
			}
		})
	}
}
