package shim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/shim"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a /proc that changes, and the cache of a pipeline.
type node struct {
	files atomic.Pointer[fstest.MapFS]
	cache *podcache.Cache
	asked atomic.Int64
	lists []time.Time // when lists of a pod were requested
	// status is that of the pipeline. opened counts the files that were opened, open those that are not
	// closed, read those that were read while they stayed open.
	status             atomic.Pointer[pleg.Status]
	opened, open, read atomic.Int64
	// followed are the processes that the watcher follows.
	followed *following
	// steady means that a file may stay open, and is read again, as in a true /proc.
	steady bool
	// refuse is a process that cannot be followed, reused one whose number is that of another process by then.
	refuse, reused int
}

// Open returns a file without the method that reads it again: that would read the old content.
func (n *node) Open(name string) (fs.File, error) {
	n.opened.Add(1)
	f, err := n.files.Load().Open(name)
	if dir, ok := f.(fs.ReadDirFile); ok || err != nil {
		return dir, err
	}
	n.open.Add(1)
	if n.steady {
		return steadyFile{file{f, n}, name}, nil
	}
	return file{f, n}, nil
}

type file struct {
	fs.File
	of *node
}

func (f file) Close() error {
	f.of.open.Add(-1)
	return f.File.Close()
}

type steadyFile struct {
	file
	name string
}

func (f steadyFile) ReadAt(b []byte, at int64) (int, error) {
	f.of.read.Add(1)
	if now := (*f.of.files.Load())[f.name]; now != nil {
		return bytes.NewReader(now.Data).ReadAt(b, at)
	}
	return 0, fs.ErrNotExist
}

func (n *node) Cache() cache.Reader { return n.cache }

func (n *node) RequestRelist(uid pleg.PodUID) {
	if _, known := n.cache.Entry(uid); known {
		n.asked.Add(1)
		n.lists = append(n.lists, time.Now())
	}
}

func (n *node) Status(context.Context) (pleg.Status, error) {
	if s := n.status.Load(); s != nil {
		return *s, nil
	}
	return pleg.Status{At: time.Now()}, nil
}

func (n *node) watcher() *shim.Watcher {
	n.followed = n.following()
	return shim.New(shim.Options{Proc: n, Follower: n.followed})
}

// following follows the processes of a node.
func (n *node) following() *following { return &following{n, make(map[int]bool)} }

type following struct {
	*node
	pids map[int]bool
}

func (f *following) runs(pid int) bool {
	stat := (*f.files.Load())[fmt.Sprintf("%d/stat", pid)]
	return stat != nil && !strings.Contains(string(stat.Data), ") Z ")
}

func (f *following) Follow(pid int) error {
	if !f.runs(pid) || pid == f.refuse {
		return fs.ErrNotExist
	}
	if pid == f.reused {
		f.set(map[int][]string{pid: {"x", "S", "x", "0::/other", ""}})
	}
	f.pids[pid] = true
	return nil
}

func (f *following) Forget(pid int) { delete(f.pids, pid) }

func (f *following) Ended() (ended []int) {
	for pid := range f.pids {
		if !f.runs(pid) {
			ended = append(ended, pid)
			delete(f.pids, pid)
		}
	}
	return ended
}

// set changes processes: each is its name, state, command line, cgroup and children, and "orphan" if
// init has adopted it. Children after a bar are those of a second thread. An empty process has ended.
func (n *node) set(processes map[int][]string) {
	files := maps.Clone(*n.files.Load())
	for pid, p := range processes {
		put := func(name, text string) { files[fmt.Sprintf("%d/%s", pid, name)] = &fstest.MapFile{Data: []byte(text)} }
		for name := range files {
			var of int
			if _, err := fmt.Sscanf(name, "%d/", &of); err == nil && of == pid {
				delete(files, name)
			}
		}
		if len(p) == 0 {
			continue
		}
		parent := "10" // the shim
		if pid == 10 || len(p) > 5 {
			parent = "1"
		}
		stat := fmt.Sprintf("%d (%s) %s %s 1", pid, p[0], p[1], parent)
		put("comm", p[0]+"\n")
		put("stat", stat)
		put(fmt.Sprintf("task/%d/stat", pid), stat)
		put("cmdline", p[2])
		put("cgroup", p[3])
		first, second, _ := strings.Cut(p[4], "|")
		put(fmt.Sprintf("task/%d/children", pid), first)
		put(fmt.Sprintf("task/%d/children", pid+1), second)
	}
	n.files.Store(&files)
}

// running writes the status of a pod whose containers c1 and c2 run or not, as of now.
func (n *node) running(state pleg.State) {
	n.cache.Set("u", &pleg.PodStatus{
		UID: "u", Namespace: "shop", Name: "web-0", Sandboxes: []*pleg.SandboxStatus{{ID: "sandbox", Ready: true}},
		Containers: []*pleg.ContainerStatus{{ID: "c1", Name: "nginx", State: state}, {ID: "c2", Name: "sidecar", State: pleg.StateRunning}},
	}, nil, time.Now())
}

const (
	shimLine   = "/usr/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00sandbox\x00-address\x00/run/s\x00"
	conmonLine = "/usr/bin/conmon\x00-b\x00/x\x00-c\x00c1\x00-n\x00nginx\x00"
)

func shimIn(state string) []string { return []string{"containerd-shim", state, shimLine, "", "11 12 "} }

func inC1(state string) []string { return []string{"nginx", state, "nginx", "0::/kubepods/c1", ""} }

var (
	inC2   = []string{"sidecar", "S", "sidecar", "0::/kubepods/c2", ""}
	conmon = []string{"conmon", "S", conmonLine, "", "11"}
)

// TestStuck causes one trouble of a pod for each row. The trouble must be found, and end with its
// cause.
func TestStuck(t *testing.T) {
	containerd := map[int][]string{10: shimIn("S"), 11: inC1("S"), 12: inC2}
	crio := map[int][]string{10: conmon, 11: inC1("S")}
	stopped := &nodestate.Process{PID: 10, Name: "containerd-shim", State: "T"}
	for name, test := range map[string]struct {
		before, trouble map[int][]string
		want            []nodestate.Stuck // without the pod and the time
		agrees          bool              // the runtime learns the end
		later           map[int][]string  // part of the same trouble, which is as old as before
	}{
		"a busy shim":         {containerd, map[int][]string{10: shimIn("R")}, nil, false, nil},
		"a stopped shim":      {containerd, map[int][]string{10: shimIn("T")}, []nodestate.Stuck{{Shim: stopped}}, false, nil},
		"a shim in the disk":  {containerd, map[int][]string{10: shimIn("D")}, []nodestate.Stuck{{Shim: &nodestate.Process{PID: 10, Name: "containerd-shim", State: "D"}}}, false, nil},
		"a frozen cgroup":     {containerd, map[int][]string{10: {"containerd-shim", "S", shimLine, "4:freezer:/\n0::/pod/frozen\n", "11 12 "}, 11: inC1("Z")}, []nodestate.Stuck{{Shim: &nodestate.Process{PID: 10, Name: "containerd-shim", State: "D"}, Container: "nginx", ID: "c1"}}, false, nil},
		"and an end":          {containerd, map[int][]string{10: shimIn("T"), 11: inC1("Z")}, []nodestate.Stuck{{Shim: stopped, Container: "nginx", ID: "c1"}}, false, nil},
		"and a later end":     {containerd, map[int][]string{10: shimIn("T")}, []nodestate.Stuck{{Shim: stopped, Container: "nginx", ID: "c1"}}, false, map[int][]string{11: inC1("Z")}},
		"an end":              {containerd, map[int][]string{11: inC1("Z")}, nil, true, nil},
		"a frozen cgroup v2":  {containerd, map[int][]string{10: {"containerd-shim", "S", shimLine, "0::/v2/frozen\n", "11 12 "}, 11: inC1("Z")}, []nodestate.Stuck{{Shim: &nodestate.Process{PID: 10, Name: "containerd-shim", State: "D"}, Container: "nginx", ID: "c1"}}, false, nil},
		"no frozen cgroup":    {containerd, map[int][]string{10: {"containerd-shim", "S", shimLine, "0::/v2\n", "11 12 "}, 11: inC1("Z")}, []nodestate.Stuck{{Container: "nginx", ID: "c1"}}, false, nil},
		"a lost end":          {containerd, map[int][]string{11: nil}, []nodestate.Stuck{{Container: "nginx", ID: "c1"}}, false, nil},
		"an exec ended":       {containerd, map[int][]string{11: nil, 10: {"containerd-shim", "S", shimLine, "", "12 13"}, 13: inC1("S")}, nil, false, nil},
		"a zombie, not yet":   {containerd, map[int][]string{11: inC1("Z"), 10: {"containerd-shim", "S", shimLine, "", "11 12 13"}, 13: inC1("S")}, nil, false, nil},
		"conmon ended":        {crio, map[int][]string{10: nil}, []nodestate.Stuck{{Shim: &nodestate.Process{PID: 10}}}, false, nil},
		"and its container":   {crio, map[int][]string{10: nil, 11: nil}, []nodestate.Stuck{{Container: "nginx", ID: "c1"}}, false, nil},
		"another shim":        {map[int][]string{10: {"containerd-shim", "S", "/bin/containerd-shim-runsc-v1\x00-id\x00sandbox\x00", "", "11"}, 11: inC1("S")}, map[int][]string{11: nil}, nil, false, nil},
		"nothing was watched": {map[int][]string{11: inC1("S")}, map[int][]string{11: nil}, nil, false, nil},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			n := &node{cache: podcache.New()}
			n.files.Store(&fstest.MapFS{"self/stat": {}})
			n.set(test.before)
			state := pleg.StateRunning
			n.running(state)
			w := n.watcher()
			if strings.Contains(name, "cgroup") {
				w = shim.New(shim.Options{Proc: n, Follower: n.following(), Cgroups: fstest.MapFS{
					"unified/pod/frozen/cgroup.events": {Data: []byte("populated 1\nfrozen 1\n")},
					"v2/frozen/cgroup.events":          {Data: []byte("frozen 1\npopulated 1\n")},
					"v2/cgroup.events":                 {Data: []byte("populated 1\nfrozen 0\n")},
				}})
			}
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			pass := func(seconds int) {
				for range seconds {
					time.Sleep(time.Second)
					n.running(state)
					synctest.Wait()
				}
			}
			pass(5)
			if got := w.Stuck(); len(got) > 0 {
				t.Fatalf("before: %+v", got)
			}
			began := time.Now()
			n.set(test.trouble)
			if name == "and an end" { // the end is seen first
				n.set(map[int][]string{10: shimIn("S")})
				pass(1)
			}
			if len(test.want) > 0 && test.want[0].Shim == stopped { // at first it still waits for the disk
				n.set(map[int][]string{10: shimIn("D")})
				pass(1)
				n.set(test.trouble)
			}
			if test.agrees {
				state = pleg.StateExited
			}
			pass(1)
			if got := w.Stuck(); len(got) > 0 {
				t.Errorf("after a second: %+v", got)
			}
			for range 8 {
				pass(1)
				for _, got := range w.Stuck() {
					if len(test.want) == 0 || (got.Shim == nil) != (test.want[0].Shim == nil) {
						t.Errorf("for a while: %+v, want %+v", got, test.want)
					}
				}
			}
			if test.later != nil {
				n.set(test.later)
				pass(8)
			}
			got := w.Stuck()
			if len(got) != len(test.want) {
				t.Fatalf("found %+v, want %+v", got, test.want)
			}
			for i, want := range test.want {
				g := got[i]
				same := (g.Shim == nil) == (want.Shim == nil) && (g.Shim == nil || *g.Shim == *want.Shim)
				if !same || g.Container != want.Container || g.ID != want.ID || g.UID != "u" || g.Name != "web-0" || g.Since.Sub(began) > 5*time.Second {
					t.Errorf("found %+v of %+v, want %+v of %+v", g, g.Shim, want, want.Shim)
				}
				if asked := n.asked.Load(); want.ID != "" && asked > 1 || asked == 0 && (want.Shim == nil || want.ID != "" && name != "and an end") {
					t.Errorf("%d lists of the pod were requested within 9 s, want one: each starts the inspection again", asked)
				}
			}
			if name == "and an end" { // the shim continues, and no list comes
				asked := n.asked.Load()
				n.set(map[int][]string{10: shimIn("R")})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if got := w.Stuck(); len(got) > 0 || n.asked.Load() == asked {
					t.Errorf("without a list since the shim continued: %+v, %d lists requested", got, n.asked.Load()-asked)
				}
			} else if len(test.want) > 0 && test.want[0].Shim == stopped { // the shim continues, and reports the end later
				for _, state := range []string{"R", "D", "S"} {
					n.set(map[int][]string{10: shimIn(state)})
					pass(1)
					if got := w.Stuck(); len(got) > 0 {
						t.Errorf("its shim has continued, in state %s: %+v of %+v", state, got[0], got[0].Shim)
					}
				}
			}
			n.set(containerd)
			state = pleg.StateExited
			pass(2)
			if got := w.Stuck(); len(got) > 0 {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

// TestTimes causes troubles between two looks, 5.5 s after the beginning, and others 7 s later. The file says when each is found, since
// when it is, when a list of the pod is requested, how many files were opened in a second and are open, and which processes are followed.
func TestTimes(t *testing.T) {
	containerd, crio := map[int][]string{10: shimIn("S"), 11: inC1("S"), 12: inC2}, map[int][]string{10: conmon, 11: inC1("S")}
	usual := [2]int{5, 12}
	alone := func(children string) map[int][]string {
		return map[int][]string{10: {"containerd-shim", "S", shimLine, "", children}, 11: inC1("S")}
	}
	var all strings.Builder
	for _, test := range []struct {
		name                   string
		before, trouble, later map[int][]string
		at                     [2]int // the seconds of trouble and later, if not those
	}{
		{"a stopped shim", containerd, map[int][]string{10: shimIn("T")}, map[int][]string{10: shimIn("S")}, usual},
		{"and an end", containerd, map[int][]string{10: shimIn("T"), 11: inC1("Z")}, map[int][]string{10: shimIn("S")}, usual},
		{"and a later end", containerd, map[int][]string{10: shimIn("t")}, map[int][]string{11: inC1("Z")}, usual},
		{"an end, then its shim is stopped", containerd, map[int][]string{11: nil}, map[int][]string{10: shimIn("T")}, usual},
		{"two lost ends", containerd, map[int][]string{11: nil}, map[int][]string{12: nil}, usual},
		{"conmon ended", crio, map[int][]string{10: nil}, map[int][]string{11: nil}, usual},
		{"a shim in the disk ends", containerd, map[int][]string{10: shimIn("D")}, map[int][]string{10: nil}, usual},
		{"a container starts late", alone("11"), map[int][]string{10: shimIn("S"), 12: inC2}, map[int][]string{12: nil}, usual},
		{"minutes late", alone("11"), map[int][]string{10: shimIn("S"), 12: inC2}, map[int][]string{12: nil}, [2]int{70, 125}},
		{"an exec's end while another is sought", alone("11"), map[int][]string{11: nil, 10: alone("13")[10], 13: inC1("S")}, map[int][]string{13: nil}, [2]int{8, 15}},
		{"an exec of an older thread", map[int][]string{10: alone("15|11 12")[10], 11: inC1("S"), 12: inC2, 15: inC1("S")}, map[int][]string{15: nil}, map[int][]string{11: nil}, usual},
		{"without a shim", map[int][]string{11: append(inC1("S"), "orphan")}, map[int][]string{12: append(slices.Clone(inC2), "orphan")}, map[int][]string{11: nil}, usual},
		{"its conmon starts late", map[int][]string{11: inC1("S")}, crio, map[int][]string{11: nil}, usual},
	} {
		kit.Bubble(t, test.name, func(t *testing.T) {
			n := &node{cache: podcache.New(), steady: true}
			n.files.Store(&fstest.MapFS{"self/stat": {}})
			n.set(map[int][]string{30: {"containerd-shim", "S", strings.Replace(shimLine, "sandbox", "foreign", 1), "", "31"}, 31: {"x", "S", "x", "0::/other", ""}})
			n.set(test.before)
			n.load(fmt.Sprintf("2.89 2.16 1.62 %d/5000 812\n", 4*runtime.NumCPU())) // not overloaded yet
			n.running(pleg.StateRunning)
			w, began := n.watcher(), time.Now()
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			time.Sleep(500 * time.Millisecond)
			all.WriteString(test.name + "\n")
			last := ""
			for second := range test.at[1] + 28 {
				n.running(pleg.StateRunning)
				switch second {
				case test.at[0]:
					n.set(test.trouble)
				case test.at[1]:
					n.set(test.later)
				}
				opened := n.opened.Load()
				time.Sleep(time.Second)
				synctest.Wait()
				now := fmt.Sprintf(" %d lists, %d files opened, %d open, following %v", n.asked.Load(), n.opened.Load()-opened, n.open.Load(), slices.Sorted(maps.Keys(n.followed.pids)))
				for _, s := range w.Stuck() {
					now += fmt.Sprintf("; %s %s of %s/%s %s since %v, shim %v", s.Container, s.ID, s.Namespace, s.Name, s.UID, s.Since.Sub(began), s.Shim)
				}
				if now != last {
					fmt.Fprintf(&all, "%d s:%s\n", second+1, now)
					last = now
				}
			}
		})
	}
	kit.Golden(t, "testdata/times.golden", all.String())
}

// TestStartedLater watches a container whose conmon ended before.
func TestStartedLater(t *testing.T) {
	for name, test := range map[string]struct {
		processes map[int][]string
		alone     bool
	}{
		"its conmon has ended":     {map[int][]string{11: append(inC1("S"), "orphan")}, true},
		"beside its exec":          {map[int][]string{11: append(inC1("S"), "orphan"), 100: append(inC1("S"), "orphan")}, true},
		"beside an exec's conmon":  {map[int][]string{5: {"conmon", "S", conmonLine + "-e\x00", "0::/conmon-c1", "", "orphan"}, 11: append(inC1("S"), "orphan")}, true},
		"of two, the other's runs": {map[int][]string{20: {"conmon", "S", strings.Replace(conmonLine, "c1", "c2", 1), "0::/c2", ""}, 11: append(inC1("S"), "orphan")}, true},
		"its conmon runs":          {map[int][]string{10: {"conmon", "S", conmonLine, "0::/conmon-c1", "12"}, 11: append(inC1("S"), "orphan")}, false},
		"something else runs it":   {map[int][]string{11: inC1("S")}, false},
		"another container's":      {map[int][]string{11: {"x", "S", "x", "0::/other", "", "orphan"}}, false},
		"an ended process":         {map[int][]string{11: append(inC1("Z"), "orphan")}, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			n := &node{cache: podcache.New()}
			n.files.Store(&fstest.MapFS{"self/stat": {}})
			n.set(test.processes)
			w := n.watcher()
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			pass := func() {
				for range 8 {
					time.Sleep(time.Second)
					n.running(pleg.StateRunning)
					synctest.Wait()
				}
			}
			pass()
			if got := w.Stuck(); len(got) > 0 != test.alone || test.alone && (*got[0].Shim != nodestate.Process{} || got[0].Name != "web-0" || got[0].Container != "") {
				t.Errorf("found %+v, want one without a shim: %t", got, test.alone)
			}
			n.set(map[int][]string{11: nil})
			pass()
			if got := w.Stuck(); len(got) > 0 != test.alone || test.alone && (got[0].Shim != nil || got[0].ID != "c1") {
				t.Errorf("after its end: %+v", got)
			}
		})
	}
}

// TestOrder watches a pod whose monitors are stopped: which one a finding names does not change. The state of a monitor is
// read from a file that stays open or, if that cannot be read again, from another one.
func TestOrder(t *testing.T) {
	for name, steady := range map[string]bool{"read again": true, "opened again": false} {
		kit.Bubble(t, name, func(t *testing.T) {
			n := &node{cache: podcache.New(), steady: steady}
			n.files.Store(&fstest.MapFS{"self/stat": {}})
			pod := &pleg.PodStatus{Name: "web-0"}
			for i := range 8 {
				id := fmt.Sprint("container", i)
				pod.Containers = append(pod.Containers, &pleg.ContainerStatus{ID: pleg.ContainerID(id), State: pleg.StateRunning})
				n.set(map[int][]string{20 + i: {"conmon", "T", strings.Replace(conmonLine, "c1", id, 1), "", ""}})
			}
			n.cache.Set("u", pod, nil, time.Now())
			n.cache.Set("never inspected", nil, fs.ErrInvalid, time.Now())
			w := n.watcher()
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			time.Sleep(10 * time.Second)
			synctest.Wait()
			for i, got := range w.Stuck() {
				if *got.Shim != (nodestate.Process{PID: 20 + i, Name: "conmon", State: "T"}) {
					t.Errorf("finding %d is of process %+v", i, got.Shim)
				}
			}
			if len(w.Stuck()) != 8 {
				t.Errorf("%d findings, want 8", len(w.Stuck()))
			}
		})
	}
}

// many returns a node with pods, each with a container and a shim of 12 threads or, on CRI-O, a conmon for the
// container.
func many(pods int, crio bool) (*node, *shim.Watcher) {
	n := &node{cache: podcache.New()}
	n.files.Store(&fstest.MapFS{"self/stat": {}})
	processes := make(map[int][]string)
	for i := range pods {
		id := fmt.Sprintf("sandbox%03d", i)
		processes[1000+i] = []string{"containerd-shim", "S", strings.Replace(shimLine, "sandbox", id, 1), "", fmt.Sprint(5000 + i)}
		if crio {
			processes[1000+i] = []string{"conmon", "S", strings.Replace(conmonLine, "c1", id+"c", 1), "", fmt.Sprint(5000 + i)}
		}
		processes[5000+i] = []string{"app", "S", "app", "0::/kubepods/" + id + "c", ""}
		n.cache.Set(pleg.PodUID(id), &pleg.PodStatus{
			UID: pleg.PodUID(id), Name: id, Sandboxes: []*pleg.SandboxStatus{{ID: pleg.ContainerID(id), Ready: true}},
			Containers: []*pleg.ContainerStatus{{ID: pleg.ContainerID(id + "c"), State: pleg.StateRunning}},
		}, nil, time.Now())
	}
	n.set(processes)
	for pid := range processes {
		for thread := range 11 {
			n.thread(pid, 100_000+pid*20+thread, "S")
		}
	}
	return n, n.watcher()
}

// thread sets the state of a thread.
func (n *node) thread(pid, thread int, state string) {
	files := maps.Clone(*n.files.Load())
	files[fmt.Sprintf("%d/task/%d/stat", pid, thread)] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d (x) %s 1 1", thread, state)}
	n.files.Store(&files)
}

// TestIdleNode counts reads while nothing happens: no file is opened, and the state of each shim is read
// again every 5 s. CRI-O runs no process for a sandbox, and none is sought.
func TestIdleNode(t *testing.T) {
	for name, crio := range map[string]bool{"containerd": false, "CRI-O": true} {
		kit.Bubble(t, name, func(t *testing.T) {
			const shims = 110
			n, w := many(shims, crio)
			n.steady = true
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			time.Sleep(3 * time.Second)
			synctest.Wait()
			opened, read := n.opened.Load(), n.read.Load()
			if opened < shims {
				t.Errorf("%d files were opened at first, want those of all shims", opened)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			opened, read = n.opened.Load()-opened, n.read.Load()-read
			if opened > 0 || read > 12*shims {
				t.Errorf("%d files were opened in a minute, and %d states read, want none, and at most %d", opened, read, 12*shims)
			}
		})
	}
}

// TestHangingPod uses two shims of which a thread waits for a disk. One is found while an inspection of its pod
// hangs, or waits for its next try.
func TestHangingPod(t *testing.T) {
	for name, status := range map[string]pleg.Status{
		"now":    {Overdue: []pleg.Inspection{{UID: "sandbox002"}}},
		"before": {Quarantined: []pleg.Quarantined{{UID: "sandbox002"}}},
		"CRI-O":  {Overdue: []pleg.Inspection{{UID: "sandbox002"}}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			program := map[bool]string{false: "containerd-shim", true: "conmon"}[name == "CRI-O"]
			n, w := many(20, name == "CRI-O")
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			time.Sleep(5 * time.Second)
			status.At = time.Now()
			n.status.Store(&status)
			n.cache.Set("sandbox002", nil, errors.New("deadline exceeded"), time.Now())
			n.thread(1002, 777, "D")
			n.thread(1003, 778, "D")
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if got := w.Stuck(); len(got) != 1 || got[0].UID != "sandbox002" || *got[0].Shim != (nodestate.Process{PID: 1002, Name: program, State: "D"}) {
				t.Errorf("found %+v", got)
			}
		})
	}
}

// TestLongestFirst stops the shims of two pods, one after the other.
func TestLongestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := many(20, false)
		if got := w.Stuck(); got != nil {
			t.Errorf("before the first look: %+v", got)
		}
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
		time.Sleep(5 * time.Second)
		for _, pod := range []int{5, 2} {
			n.set(map[int][]string{1000 + pod: shimOf(pod, "T")})
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		if got := w.Stuck(); len(got) != 2 || got[0].UID != "sandbox005" || got[1].UID != "sandbox002" {
			t.Errorf("found %+v, want the pod first whose shim was stopped first", got)
		}
	})
}

// shimOf returns the shim of a pod that [many] made.
func shimOf(pod int, state string) []string {
	return []string{"containerd-shim", state, strings.Replace(shimLine, "sandbox", fmt.Sprintf("sandbox%03d", pod), 1), "", fmt.Sprint(5000 + pod)}
}

// TestWithoutContainers stops the shims of two pods of which no container runs: all have ended in one, and the
// other was listed before its shim ran.
func TestWithoutContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := many(20, false)
		n.set(map[int][]string{1007: nil, 5007: nil})
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
		for pod, after := range map[int]time.Duration{5: 5500 * time.Millisecond, 7: 0} {
			time.AfterFunc(after, func() {
				id := fmt.Sprintf("sandbox%03d", pod)
				n.cache.Set(pleg.PodUID(id), &pleg.PodStatus{
					UID: pleg.PodUID(id), Sandboxes: []*pleg.SandboxStatus{{ID: pleg.ContainerID(id), Ready: true}},
					Containers: []*pleg.ContainerStatus{{ID: pleg.ContainerID(id + "c"), State: pleg.StateExited}},
				}, nil, time.Now())
			})
		}
		time.Sleep(5500 * time.Millisecond)
		n.set(map[int][]string{1007: shimOf(7, "S"), 5005: nil})
		time.Sleep(5 * time.Second)
		n.set(map[int][]string{1005: shimOf(5, "T"), 1007: shimOf(7, "T")})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := w.Stuck(); len(got) != 2 || got[0].UID != "sandbox007" || got[1].UID != "sandbox005" {
			t.Errorf("found %+v, want both", got)
		}
	})
}

// TestForgets removes pods whose processes run on, or ends: no process is followed any more, and no file stays open.
func TestForgets(t *testing.T) {
	for name, crio := range map[string]bool{"containerd": false, "CRI-O": true} {
		kit.Bubble(t, name, func(t *testing.T) {
			n, w := many(20, crio)
			stop := kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			for _, pods := range []int{20, 10, 0} {
				if pods == 0 {
					if err := stop(); !errors.Is(err, context.Canceled) {
						t.Errorf("Run returns %v, want the end of its context", err)
					}
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if files, followed := n.open.Load(), len(n.followed.pids); files != int64(pods) || followed != 2*pods {
					t.Errorf("%d pods: %d files are open, and %d processes followed, want that of each shim, and two of each pod", pods, files, followed)
				}
				for i := range pods / 2 {
					n.cache.Delete(pleg.PodUID(fmt.Sprintf("sandbox%03d", i)), time.Now())
				}
			}
		})
	}
}

// TestShimEndsWhenFound uses a shim that ends between two looks at its files, or before it can be followed: it is
// not followed.
func TestShimEndsWhenFound(t *testing.T) {
	for name, refuse := range map[string]int{"its files": 0, "follows": 1000} {
		kit.Bubble(t, name, func(t *testing.T) {
			n, w := many(1, false)
			n.refuse = refuse
			if refuse == 0 {
				files := maps.Clone(*n.files.Load())
				delete(files, "1000/task/1000/stat")
				n.files.Store(&files)
			}
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			for range 2 {
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if len(n.followed.pids) > 0 || n.open.Load() > 0 {
					t.Errorf("%v are followed, %d files are open", n.followed.pids, n.open.Load())
				}
				n.cache.Delete("sandbox000", time.Now())
			}
		})
	}
}

// TestReusedNumber uses a process that ends before it is followed, and whose number is used again: that process is
// not followed.
func TestReusedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := many(1, false)
		n.reused = 5000
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(n.followed.pids) != 1 || !n.followed.pids[1000] {
			t.Errorf("%v are followed, want the shim alone", n.followed.pids)
		}
	})
}

// TestSandboxEndsFirst uses a pod whose sandbox has ended while its containers, which take their time to stop, still
// run: their shim runs, and is watched.
func TestSandboxEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{cache: podcache.New()}
		n.files.Store(&fstest.MapFS{"self/stat": {}})
		n.set(map[int][]string{10: shimIn("S"), 11: inC1("S"), 12: inC2})
		w, began := n.watcher(), time.Now()
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
		pass := func(seconds int, state pleg.State) []nodestate.Stuck {
			for range seconds {
				n.cache.Set("u", &pleg.PodStatus{
					UID: "u", Name: "web-0", Sandboxes: []*pleg.SandboxStatus{{ID: "sandbox", Ready: time.Since(began) < 5*time.Second}},
					Containers: []*pleg.ContainerStatus{{ID: "c1", State: state}, {ID: "c2", State: state}},
				}, nil, time.Now())
				time.Sleep(time.Second)
				synctest.Wait()
			}
			return w.Stuck()
		}
		if got := pass(20, pleg.StateRunning); len(got) > 0 {
			t.Errorf("the shim runs: %+v of %+v", got, got[0].Shim)
		}
		n.set(map[int][]string{10: shimIn("T")})
		if got := pass(10, pleg.StateRunning); len(got) != 1 || got[0].Shim == nil || got[0].Shim.State != "T" {
			t.Errorf("the shim is stopped: %+v", got)
		}
		if got := pass(2, pleg.StateExited); len(got) > 0 || n.open.Load() > 0 || len(n.followed.pids) > 0 {
			t.Errorf("afterwards: %+v, %d files are open, %v are followed", got, n.open.Load(), n.followed.pids)
		}
	})
}

// TestBusyRuntime uses a container whose end the runtime does not know, while it does not answer as usual: that
// time does not count.
func TestBusyRuntime(t *testing.T) {
	since := time.Unix(1, 0)
	for name, tc := range map[string]struct {
		busy pleg.Status
		load string
	}{
		"stopped":             {pleg.Status{Relist: pleg.RelistStatus{Started: since}}, ""},
		"failing":             {pleg.Status{Relist: pleg.RelistStatus{Failures: 1}}, ""},
		"slow":                {pleg.Status{Details: nodestate.State{Since: nodestate.Since{Slow: since}}}, ""},
		"on a node like that": {pleg.Status{}, fmt.Sprintf("2.89 2.16 1.62 %d/5000 812\n", 4*runtime.NumCPU()+1)},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			n := &node{cache: podcache.New()}
			n.files.Store(&fstest.MapFS{"self/stat": {}})
			n.set(map[int][]string{10: shimIn("S"), 11: inC1("S"), 12: inC2})
			w := n.watcher()
			n.running(pleg.StateRunning)
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
			pass := func(seconds int) {
				for range seconds {
					time.Sleep(time.Second)
					n.running(pleg.StateRunning)
					synctest.Wait()
				}
			}
			pass(3)
			tc.busy.At = time.Now()
			n.status.Store(&tc.busy)
			n.load(tc.load)
			n.set(map[int][]string{11: inC1("Z")})
			pass(30)
			if got := w.Stuck(); len(got) > 0 {
				t.Errorf("while the runtime is busy: %+v", got)
			}
			n.status.Store(nil)
			n.load("0.50 0.40 0.30 1/500 812\n")
			since := time.Now()
			pass(4)
			if got := w.Stuck(); len(got) > 0 {
				t.Errorf("4 s later: %+v", got)
			}
			pass(3)
			if got := w.Stuck(); len(got) != 1 || got[0].ID != "c1" || since.Sub(got[0].Since).Abs() > time.Second {
				t.Errorf("7 s later: %+v, want c1 since %v", got, since)
			}
			n.load("2.89 2.16 1.62 4096/5000 812\n")
			pass(30)
			if got := w.Stuck(); len(got) != 1 || since.Sub(got[0].Since).Abs() > time.Second {
				t.Errorf("once it was found: %+v, want c1 since %v", got, since)
			}
		})
	}
}

// TestNodeStaysOverloaded uses a container whose end the runtime never tells.
func TestNodeStaysOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{cache: podcache.New()}
		n.files.Store(&fstest.MapFS{"self/stat": {}})
		n.set(map[int][]string{10: shimIn("S"), 11: inC1("S"), 12: inC2})
		n.load("2.89 2.16 1.62 4096/5000 812\n")
		w := n.watcher()
		n.running(pleg.StateRunning)
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, n, nil) })
		time.Sleep(3 * time.Second)
		n.set(map[int][]string{11: inC1("Z")})
		began := time.Now()
		for len(w.Stuck()) == 0 && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
			n.running(pleg.StateRunning)
			synctest.Wait()
		}
		if took := time.Since(began); took < 5*time.Minute || took > 5*time.Minute+10*time.Second {
			t.Errorf("found after %v, want some seconds after five minutes", took)
		}
	})
}

// load sets the content of /proc/loadavg.
func (n *node) load(text string) {
	files := maps.Clone(*n.files.Load())
	files["loadavg"] = &fstest.MapFile{Data: []byte(text)}
	n.files.Store(&files)
}
