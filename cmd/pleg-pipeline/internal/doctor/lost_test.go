package doctor_test

import (
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const (
	runc   = `"runtimeType": "io.containerd.runc.v2", "pid": 41, `
	crio   = `"sandboxID": "s", "pid": 41, `
	folder = "kubepods/podu1/c1/"
)

// changing are cgroups, one of which has processes when it is read again.
type changing struct {
	fstest.MapFS
	reads map[string]int
}

func (c changing) ReadFile(name string) ([]byte, error) {
	if c.reads[name]++; c.reads[name] > 1 {
		return []byte("populated 1\n"), nil
	}
	return c.MapFS.ReadFile(name)
}

// TestExamineFindsLostExits has a running container with and without a process. Only a container
// that has certainly ended is reported.
func TestExamineFindsLostExits(t *testing.T) {
	busy, empty := &fstest.MapFile{Data: []byte("populated 1\nfrozen 0\n")}, &fstest.MapFile{Data: []byte("populated 0\nfrozen 0\n")}
	const slice = "kubepods-burstable-podu1.slice:cri-containerd:"
	const inSlice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice/cri-containerd-"
	nothing := fstest.MapFS{folder + "cgroup.events": empty}
	host := fstest.MapFS{"self/ns/pid": {Data: []byte("pid:[4026531836]"), Mode: fs.ModeSymlink}}
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
		"cgroupfs, with a process":   {"", runc, "", fstest.MapFS{folder + "cgroup.events": busy}, nil, false},
		"cgroupfs, without one":      {"", runc, "", nothing, host, true},
		"v1, with a process":         {"", runc, "", fstest.MapFS{"pids/" + folder + "cgroup.procs": {Data: []byte("41\n")}}, nil, false},
		"v1, without one":            {"", runc, "", fstest.MapFS{"pids/" + folder + "cgroup.procs": {}, "pids/" + folder + "init/cgroup.procs": {}}, nil, true},
		"v1, in a child":             {"", runc, "", fstest.MapFS{"pids/" + folder + "cgroup.procs": {}, "pids/" + folder + "root/init.scope/cgroup.procs": {Data: []byte("41\n")}}, nil, false},
		"in another namespace":       {"", runc, "", fstest.MapFS{}, nil, false},
		"no cgroup is reported":      {"/", runc, "", fstest.MapFS{"cgroup.events": empty}, nil, false},
		"a strange path":             {"../../etc:x", runc, "", fstest.MapFS{"cgroup.events": empty}, nil, false},
		"an exit under way":          {"", runc, "", changing{nothing, make(map[string]int)}, nil, false},
		"in another cgroup":          {"", runc, "", nothing, with(host, "41/stat", "41 (a) b) S 1"), false},
		"a zombie":                   {"", runc, "", nothing, with(host, "41/stat", "41 (a) b) Z 1"), true},
		"crun":                       {"", binary("/usr/bin/crun"), "crun", nothing, host, true},
		"Sysbox":                     {"", binary("/usr/bin/sysbox-runc"), "sysbox", nothing, host, false},
		"gVisor called as runc":      {"", binary("/usr/local/bin/runsc"), "", nothing, host, false},
		"gVisor":                     {"", `"runtimeType": "io.containerd.runsc.v1", `, "gvisor", nothing, host, false},
		"Kata":                       {"", `"runtimeType": "io.containerd.kata.v2", "pid": 41, `, "kata", nothing, host, false},
		"zeropod":                    {"", `"runtimeType": "io.containerd.zeropod.v2", "pid": 41, `, "zeropod", nothing, host, false},
		"another, as the default":    {"", `"runtimeType": "io.containerd.zeropod.v2", "pid": 41, `, "", nothing, host, false},
		"CRI-O, its process ended":   {"", crio, "", nothing, host, true},
		"CRI-O, its process runs":    {"", crio, "", nothing, with(host, "41/stat", "41 (conmon) S 1"), false},
		"CRI-O, other namespace":     {"", crio, "", nothing, fstest.MapFS{"self/ns/pid": {Data: []byte("pid:[4026532441]"), Mode: fs.ModeSymlink}}, false},
		"CRI-O, no process known":    {"", "", "", nothing, host, false},
		"CRI-O, Kata":                {"", crio, "kata", nothing, host, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			if test.cgroup == "" {
				test.cgroup = "/" + folder
			}
			s := stubOfNginx(test.cgroup, test.info)
			s.Sandboxes[0].RuntimeHandler = test.handler
			o := serveStub(t, s)
			o.Cgroups, o.Proc = test.cgroups, test.proc
			r := doctor.Examine(t.Context(), o)
			if test.lost {
				check(t, r, verdict.EmptyCgroup, verdict.Problem, "shop/web-0 (nginx c1): cgroup ", "has no process")
				if !strings.HasPrefix(r.Verdict, "PROBLEM: shop/web-0 has a container without a process for at least ") || !strings.Contains(r.Findings[0].Advice, "crictl -t 1m stop c1)") {
					t.Errorf("verdict %q, advice %q, want the pod and the container to stop", r.Verdict, r.Findings[0].Advice)
				}
			} else if len(r.Empty) > 0 {
				t.Errorf("empty %+v, want none", r.Empty)
			}
		})
	}
}

// TestExamineDuringAnEnd has a container that ends while it is examined: the runtime says so at the
// next question, and nothing is lost.
func TestExamineDuringAnEnd(t *testing.T) {
	for name, after := range map[string]time.Duration{"before the first look": 0, "between two looks": time.Second, "later": time.Minute} {
		kit.Bubble(t, name, func(t *testing.T) {
			s := stubOfNginx("/"+folder, runc)
			ends := time.Now().Add(after)
			s.After = func(answer any) any {
				running, ok := answer.(*runtimeapi.ContainerStatusResponse)
				if !ok || time.Now().Before(ends) {
					return answer
				}
				exited := proto.CloneOf(running)
				exited.Status.State = runtimeapi.ContainerState_CONTAINER_EXITED
				return exited
			}
			o := serveStub(t, s)
			o.Cgroups, o.Proc = fstest.MapFS{folder + "cgroup.events": {Data: []byte("populated 0\n")}}, fstest.MapFS{}
			if r := doctor.Examine(t.Context(), o); len(r.Empty) > 0 != (after == time.Minute) {
				t.Errorf("empty %+v, verdict %q", r.Empty, r.Verdict)
			}
		})
	}
}

// TestExamineFindsStoppedShim has a shim that a signal stopped, with a container that has ended: that
// is one trouble.
func TestExamineFindsStoppedShim(t *testing.T) {
	kit.Bubble(t, "stopped, and an end", func(t *testing.T) {
		o := serveStub(t, stubOfNginx("/"+folder, runc))
		stat := &fstest.MapFile{Data: []byte("40 (containerd-shim) T 1 ")}
		o.Cgroups, o.Proc = fstest.MapFS{folder + "cgroup.events": {Data: []byte("populated 0\n")}}, fstest.MapFS{
			"self/stat": {}, "40/stat": stat, "40/task/40/stat": stat,
			"40/cmdline": {Data: []byte("/usr/bin/containerd-shim-runc-v2\x00-id\x00s\x00")},
		}
		r := doctor.Examine(t.Context(), o)
		const begin, end = "PROBLEM: shop/web-0 has a hung shim for at least ", "containerd-shim, PID 40, is stopped by a signal; nginx has ended, and the runtime calls it running"
		if !strings.HasPrefix(r.Verdict, begin) || !strings.HasSuffix(r.Verdict, end) {
			t.Errorf("verdict %q, want %q, %q", r.Verdict, begin, end)
		}
		if len(r.Empty) > 0 {
			t.Errorf("also %+v", r.Empty)
		}
	})
}
