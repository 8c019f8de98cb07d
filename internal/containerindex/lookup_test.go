package containerindex_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var (
	c1      = strings.Repeat("1a", 32)
	c2      = strings.Repeat("2b", 32)
	sandbox = strings.Repeat("3c", 32)
)

func index() *containerindex.Index {
	x := containerindex.NewIndex(containerindex.Source{})
	x.Set(&pleg.PodStatus{
		UID: "web", Name: "web-0", Namespace: "shop",
		Containers: []*pleg.ContainerStatus{
			{ID: pleg.ContainerID(c1), Name: "nginx", Attempt: 2, State: pleg.StateRunning, Image: "nginx:1", ImageRef: "sha256:1", LogPath: "/var/log/1"},
		},
		Sandboxes: []*pleg.SandboxStatus{
			{ID: pleg.ContainerID(sandbox), Attempt: 1, Ready: true, CreatedAt: time.Unix(5, 0), Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "1"}},
			{ID: "older", Labels: map[string]string{"app": "older"}},
		},
	})
	return x
}

// file writes a file below a folder.
func file(t *testing.T, folder, name, content string) {
	t.Helper()
	name = filepath.Join(folder, name)
	kit.Must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		cgroup string
		want   string
		path   string
		err    error
	}{
		"containerd, systemd": {cgroup: "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + c1 + ".scope\n", want: c1},
		"containerd, cgroupfs": {
			cgroup: "0::/kubepods/besteffort/pod1a/" + c1 + "\n", want: c1, path: "/kubepods/besteffort/pod1a/" + c1,
		},
		"CRI-O":            {cgroup: "0::/kubepods.slice/crio-" + c1 + ".scope\n", want: c1},
		"CRI-O, cgroupfs":  {cgroup: "0::/kubepods/pod1/crio-" + c1 + "/container\n", want: c1},
		"CRI-O's conmon":   {cgroup: "0::/kubepods.slice/crio-conmon-" + c1 + ".scope\n", err: lookup.ErrNoContainer},
		"conmon, cgroupfs": {cgroup: "0::/kubepods/pod1/crio-conmon-" + c1 + "\n", err: lookup.ErrNoContainer},
		"conmon in Rust":   {cgroup: "0::/kubepods/pod1/crio-conmonrs-" + c1 + "\n", err: lookup.ErrNoContainer},
		"conmon alone":     {cgroup: "0::/kubepods/pod1/conmon-" + c1 + "\n", err: lookup.ErrNoContainer},
		"a monitor":        {cgroup: "0::/kubepods/pod1/x-monitor-" + c1 + "\n", err: lookup.ErrNoContainer},
		"a shim":           {cgroup: "0::/kubepods/pod1/x-shim:" + c1 + "\n", err: lookup.ErrNoContainer},
		"a mount unit":     {cgroup: "0::/system.slice/run-containerd-k8s.io-" + c1 + "-rootfs.mount\n", err: lookup.ErrNoContainer},
		"containerd's own": {cgroup: "0::/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + c1 + "\n", want: c1},
		"sandbox":          {cgroup: "0::/kubepods/pod1/" + sandbox + "\n", want: sandbox},
		"cgroup v1": {
			cgroup: "9:name=systemd:/\n8:pids:/kubepods/pod1/" + c1 + "\n0::/\n", want: c1, path: "/kubepods/pod1/" + c1,
		},
		"a cgroup of the container":   {cgroup: "0::/kubepods/pod1/" + c1 + "/init.scope/" + c2 + "\n", want: c1},
		"a node that is a container":  {cgroup: "0::/docker/" + c2 + "/kubepods/pod1/" + c1 + "\n", want: c1},
		"a container in a container":  {cgroup: "0::/kubepods/pod1/" + sandbox + "/" + c1 + "\n", want: c1},
		"a container not known yet":   {cgroup: "0::/kubepods/pod1/" + c2 + "\n", err: lookup.ErrNotYet},
		"a process of the host":       {cgroup: "0::/system.slice/sshd.service\n", err: lookup.ErrNoContainer},
		"a name of the same length":   {cgroup: "0::/kubepods/" + strings.Repeat("zz", 32) + "\n", err: lookup.ErrNoContainer},
		"a hash of another length":    {cgroup: "0::/kubepods/" + c1 + "ff\n", err: lookup.ErrNoContainer},
		"no cgroups":                  {cgroup: "\n", err: lookup.ErrNoContainer},
		"colons in the path":          {cgroup: "0::/a:b/" + c1 + "\n", want: c1, path: "/a:b/" + c1},
		"a zombie, without hierarchy": {cgroup: "", err: lookup.ErrNoContainer},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			file(t, proc, "7/cgroup", tc.cgroup)
			c, err := containerindex.Host{Proc: proc}.Lookup(t.Context(), index(), lookup.Query{PID: 7})
			if tc.err != nil && (err == nil || err.Error() != "look up process 7: "+tc.err.Error()) {
				t.Errorf("the error is %v", err)
			}
			if !errors.Is(err, tc.err) || string(c.ID) != tc.want || tc.path != "" && c.CgroupPath != tc.path {
				t.Errorf("got %q in %q, %v; want %q in %q, %v", c.ID, c.CgroupPath, err, tc.want, tc.path, tc.err)
			}
		})
	}
	// A process that watches containers is in the cgroup of its pod, or of the node.
	for line, want := range map[string]string{
		"containerd-shim /usr/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00" + sandbox + "\x00": sandbox,
		"containerd-shim /opt/bin/containerd-shim-kata-v2\x00-id\x00" + sandbox + "\x00":                         sandbox,
		"containerd-shim /usr/bin/containerd-shim-runc-v2\x00-id\x00" + sandbox + "\x00start\x00":                "",
		"conmon /usr/bin/conmon\x00-b\x00/run/x\x00-c\x00" + c1 + "\x00-n\x00nginx\x00":                          c1,
		"conmon /usr/bin/conmon\x00-c\x00" + c1 + "\x00-e\x00":                                                   "", // of an exec
		"conmon /usr/bin/conmon\x00-c\x00":                                                                       "",
		"nginx nginx\x00-c\x00" + c1:                                                                             "",
	} {
		proc := t.TempDir()
		name, args, _ := strings.Cut(line, " ")
		file(t, proc, "self/stat", "")
		file(t, proc, "7/stat", "7 ("+name+") S 1 7")
		file(t, proc, "7/cmdline", args)
		file(t, proc, "7/cgroup", "0::/docker/"+c2+"\n")
		c, err := containerindex.Host{Proc: proc}.Lookup(t.Context(), index(), lookup.Query{PID: 7})
		if want == "" && !errors.Is(err, lookup.ErrNotYet) || want != "" && (err != nil || string(c.ID) != want || c.PodName != "web-0" || c.CgroupPath != "") {
			t.Errorf("%q: %+v, %v; want %q", line, c, err, want)
		}
	}
	_, err := containerindex.Host{Proc: t.TempDir()}.Lookup(t.Context(), index(), lookup.Query{PID: 8})
	if !errors.Is(err, lookup.ErrNoContainer) || err.Error() != "look up process 8: no container of this node: the process does not exist" {
		t.Errorf("a process that does not exist: %v", err)
	}
	proc := t.TempDir()
	kit.Must(t, os.Mkdir(filepath.Join(proc, "9"), 0o755))
	kit.Must(t, os.Symlink("cgroup", filepath.Join(proc, "9", "cgroup"))) // to itself
	_, err = containerindex.Host{Proc: proc}.Lookup(t.Context(), index(), lookup.Query{PID: 9})
	if want := fmt.Sprintf("look up process 9: find the cgroup: open %s/9/cgroup: %v", proc, syscall.ELOOP); !errors.Is(err, syscall.ELOOP) || errors.Is(err, lookup.ErrNoContainer) || err.Error() != want {
		t.Errorf("a process whose cgroup cannot be read: %v, want %s", err, want)
	}
	if _, err := (containerindex.Host{}).Lookup(t.Context(), index(), lookup.Query{PID: os.Getpid()}); err == nil || strings.Contains(err.Error(), "does not exist") {
		t.Errorf("this process: %v", err)
	}
}

func TestAnswer(t *testing.T) {
	got, err := containerindex.Host{}.Lookup(t.Context(), index(), lookup.Query{Container: pleg.ContainerID(c1)})
	want := lookup.Container{
		ContainerStatus: pleg.ContainerStatus{
			ID: pleg.ContainerID(c1), Name: "nginx", Attempt: 2, State: pleg.StateRunning, Image: "nginx:1", ImageRef: "sha256:1", LogPath: "/var/log/1",
		},
		PodUID: "web", PodName: "web-0", PodNamespace: "shop", PodLabels: map[string]string{"app": "web"}, PodAnnotations: map[string]string{"note": "1"},
	}
	if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	got, err = containerindex.Host{}.Lookup(t.Context(), index(), lookup.Query{Container: pleg.ContainerID(sandbox)})
	want.Sandbox, want.ContainerStatus = true, pleg.ContainerStatus{
		ID: pleg.ContainerID(sandbox), Name: "web-0", Attempt: 1, State: pleg.StateRunning, CreatedAt: time.Unix(5, 0), Labels: want.PodLabels, Annotations: want.PodAnnotations,
	}
	if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("sandbox: got %+v, %v\nwant %+v", got, err, want)
	}
	if got, err := (containerindex.Host{}).Lookup(t.Context(), index(), lookup.Query{Container: "older"}); err != nil || got.State != pleg.StateExited || got.Labels["app"] != "older" || got.PodLabels["app"] != "web" {
		t.Errorf("a sandbox that is not ready: %+v, %v", got, err)
	}
}

// A newer status of a pod removes only what it lacks.
func TestNewerStatus(t *testing.T) {
	x := index()
	x.Set(&pleg.PodStatus{UID: "web", Name: "web-1", Containers: []*pleg.ContainerStatus{{ID: pleg.ContainerID(c1), Name: "nginx", Attempt: 3}, {ID: pleg.ContainerID(c2)}}})
	for id, removed := range map[string]bool{c1: false, c2: false, sandbox: true, "older": true} {
		c, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(id)})
		if err != nil || c.RemovedAt.IsZero() == removed || removed && c.State != pleg.StateExited || removed != (c.PodName == "web-0") || id == c1 && c.Attempt != 3 {
			t.Errorf("%s: %+v, %v, want removed: %v", id, c, err, removed)
		}
	}
}

// The forms in which people paste an id.
func TestPastedIDs(t *testing.T) {
	same := strings.Repeat("1a", 20) // the first 40 digits of c1
	x := index()
	x.Set(&pleg.PodStatus{UID: "other", Containers: []*pleg.ContainerStatus{{ID: pleg.ContainerID(same + strings.Repeat("f", 24))}, {ID: "1a"}, {ID: "beef"}}})
	for pasted, want := range map[string]struct {
		id  string
		err error
	}{
		c1:                                     {c1, nil},
		"containerd://" + c1:                   {c1, nil},
		"cri-o://" + c1:                        {c1, nil},
		`"docker://` + c1 + `",`:               {c1, nil},
		" " + c1 + "\r\n":                      {c1, nil},
		"\t'`" + c1 + "`'":                     {c1, nil},
		"cri-o://" + sandbox[:13]:              {sandbox, nil},
		sandbox[:1]:                            {sandbox, nil},
		c1[:41]:                                {c1, nil},
		c1[:40]:                                {"", pleg.ErrInvalidOption},
		"1a":                                   {"1a", nil}, // a full id of a runtime that makes others
		"bee":                                  {"", lookup.ErrNotYet},
		c1 + "0":                               {"", lookup.ErrNotYet},
		c1[1:]:                                 {"", lookup.ErrNotYet},
		"older-":                               {"", lookup.ErrNotYet},
		"old":                                  {"", lookup.ErrNotYet},
		"containerd://":                        {"", pleg.ErrInvalidOption},
		"\n":                                   {"", pleg.ErrInvalidOption},
		"containerd://" + c2 + "\nsecond line": {"", lookup.ErrNotYet},
	} {
		c, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(pasted)})
		if string(c.ID) != want.id || !errors.Is(err, want.err) {
			t.Errorf("%q: %q, %v, want %q, %v", pasted, c.ID, err, want.id, want.err)
		}
	}
	_, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(c1[:40])})
	if want := fmt.Sprintf("look up container %s: %v: several ids begin with %[1]s: give more of it", c1[:40], pleg.ErrInvalidOption); err == nil || err.Error() != want {
		t.Errorf("several ids: %v, want %s", err, want)
	}
}

func TestQueryIsChecked(t *testing.T) {
	for want, q := range map[string]lookup.Query{
		"exactly one":            {},
		"exactly one of":         {Container: "c", PID: 1},
		"PID must be positive":   {PID: -1},
		"PID must be positive a": {PID: 1 << 32},
		"Wait must not be negat": {PID: 1, Wait: -1},
	} {
		if _, err := (containerindex.Host{}).Lookup(t.Context(), index(), q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", q, err, want)
		}
	}
}

// An inspection may end between the look at the index and the question whether the pod is
// inspected.
func TestInspectionEndsDuringALookup(t *testing.T) {
	var x *containerindex.Index
	listed := make(chan error, 1)
	listed <- nil
	x = containerindex.NewIndex(containerindex.Source{
		Relist: func() <-chan error { return listed },
		Uninspected: func(time.Time) []*pleg.Pod {
			x.Set(&pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{{ID: "c"}}})
			return nil
		},
	})
	c, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: "c", Wait: time.Minute})
	if err != nil || c.PodUID != "a" {
		t.Errorf("got %+v, %v", c, err)
	}
}

// Lookups that wait share a list that began after they were asked, and keep nothing.
func TestLookupsShareLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requested := make(chan chan error, 10)
		scans := 0
		x := containerindex.NewIndex(containerindex.Source{
			Relist:      func() <-chan error { c := make(chan error, 1); requested <- c; return c },
			Uninspected: func(time.Time) []*pleg.Pod { scans++; return nil },
		})
		answers := make(chan error, 100)
		ask := func() {
			for range 20 {
				go func() {
					_, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: "c", Wait: time.Minute})
					answers <- err
				}()
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		ask()
		ask()
		if len(requested) != 1 {
			t.Fatalf("%d lists requested, want one at a time", len(requested))
		}
		for list := range 2 {
			(<-requested) <- nil
			synctest.Wait()
			if len(answers) != 20 {
				t.Errorf("after list %d: %d answers, want answers of the lookups before it", list+1, len(answers))
			}
			if scans != list+1 {
				t.Errorf("after list %d: %d scans of the pods, want one for all lookups", list+1, scans)
			}
			for range len(answers) {
				if err := <-answers; !errors.Is(err, lookup.ErrNoContainer) {
					t.Error(err)
				}
			}
		}
		for range 1000 {
			if _, err := (containerindex.Host{}).Lookup(t.Context(), x, lookup.Query{Container: "c", Wait: 1}); !errors.Is(err, lookup.ErrNotYet) {
				t.Error(err)
			}
		}
		if len(requested) != 1 {
			t.Errorf("%d lists requested, want one", len(requested))
		}
	})
}

// A lookup waits for the inspection of the pod that has the container, and asks for no other list meanwhile.
func TestLookupOfAContainerThatWaits(t *testing.T) {
	for id, want := range map[string]error{c1: nil, c1[:6]: nil, c1[:4]: pleg.ErrInvalidOption, c2: lookup.ErrNoContainer} {
		kit.Bubble(t, id, func(t *testing.T) {
			requested := make(chan chan error, 10)
			x := containerindex.NewIndex(containerindex.Source{
				Relist: func() <-chan error { c := make(chan error, 1); requested <- c; return c },
				Uninspected: func(since time.Time) []*pleg.Pod {
					if !since.Equal(time.Now()) {
						t.Errorf("the pods that wait since %v, want all that wait now", since)
					}
					return []*pleg.Pod{{UID: "b", Containers: []*pleg.Container{{ID: "other"}}}, {UID: "a", Containers: []*pleg.Container{{ID: pleg.ContainerID(c1)}}}}
				},
			})
			answers := make(chan error, 1)
			go func() {
				c, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(id), Wait: time.Minute})
				if (err == nil) != (c.PodUID == "a" && string(c.ID) == c1) {
					t.Errorf("Lookup = %+v, %v", c, err)
				}
				answers <- err
			}()
			synctest.Wait()
			x.Set(&pleg.PodStatus{UID: "b", Containers: []*pleg.ContainerStatus{{ID: "new"}}}) // before the list has ended
			time.Sleep(time.Second)
			if len(answers) > 0 || len(requested) != 1 {
				t.Fatalf("%d answers before the list, %d lists", len(answers), len(requested))
			}
			(<-requested) <- nil
			time.Sleep(time.Second)
			if listed := id != c2; listed && len(answers) > 0 || len(requested) > 0 {
				t.Fatalf("%d answers before the inspection, %d more lists", len(answers), len(requested))
			}
			x.Set(&pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{{ID: pleg.ContainerID(c1)}, {ID: pleg.ContainerID(c1[:4] + c2[4:])}}})
			if err := <-answers; !errors.Is(err, want) {
				t.Errorf("Lookup = %v, want %v", err, want)
			}
		})
	}
}

// A call that has waited gets the facts of the list, however young they are. One that does not wait gets those of
// inspections that take a second.
func TestListAnswersAfterTheWait(t *testing.T) {
	for wait, stuck := range map[time.Duration]time.Duration{0: time.Second, 300 * time.Millisecond: 0} {
		kit.Bubble(t, wait.String(), func(t *testing.T) {
			began := time.Now()
			x := containerindex.NewIndex(containerindex.Source{
				Relist: func() <-chan error { return nil }, // it hangs
				Uninspected: func(since time.Time) []*pleg.Pod {
					if got := time.Since(since); got != stuck || time.Since(began) != wait {
						t.Errorf("after %v the index asks for pods that have waited for %v, want %v and %v", time.Since(began), got, wait, stuck)
					}
					return []*pleg.Pod{{UID: "a", Containers: []*pleg.Container{{ID: "c"}}}}
				},
			})
			if c, err := (containerindex.Host{}).Lookup(t.Context(), x, lookup.Query{Container: "c", Wait: wait}); err != nil || c.PodUID != "a" {
				t.Errorf("Lookup = %+v, %v", c, err)
			}
		})
	}
}

// The ids of real cgroups, which only root may create.
func TestCgroup(t *testing.T) {
	mount := "/sys/fs/cgroup"
	if _, err := os.Stat(mount + "/unified/cgroup.procs"); err == nil {
		mount += "/unified"
	}
	parent := filepath.Join(mount, fmt.Sprintf("pleg-lookup-%d", os.Getpid()))
	dirs := []string{parent, filepath.Join(parent, c1), filepath.Join(parent, c1, "of-the-container"), filepath.Join(parent, c2)}
	ids := make([]uint64, len(dirs))
	for i, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skip("this needs root and cgroup v2: ", err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		info, err := os.Stat(dir)
		kit.Must(t, err)
		ids[i] = info.Sys().(*syscall.Stat_t).Ino
	}
	want := []struct {
		id  string
		err error
	}{{err: lookup.ErrNoContainer}, {id: c1}, {id: c1}, {err: lookup.ErrNotYet}}
	for i, want := range want {
		c, err := containerindex.Host{}.Lookup(t.Context(), index(), lookup.Query{Cgroup: ids[i]})
		if !errors.Is(err, want.err) || string(c.ID) != want.id {
			t.Errorf("cgroup %s: %q, %v, want %q, %v", dirs[i], c.ID, err, want.id, want.err)
		}
		if want.id != "" && c.CgroupPath != strings.TrimPrefix(dirs[i], mount) {
			t.Errorf("path %q, want %q", c.CgroupPath, dirs[i])
		}
	}
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		kit.Must(t, err)
		return len(files)
	}
	before := open()
	const more = 20
	for range more {
		_, _ = containerindex.Host{}.Lookup(t.Context(), index(), lookup.Query{Cgroup: ids[1]})
	}
	if left := open() - before; left >= more {
		t.Errorf("%d files are open after %d more lookups", left, more)
	}
	kit.Must(t, os.Remove(dirs[3]))
	_, err := containerindex.Host{}.Lookup(t.Context(), index(), lookup.Query{Cgroup: ids[3]})
	if want := fmt.Sprintf("look up cgroup %d: %v: the cgroup does not exist", ids[3], lookup.ErrNoContainer); !errors.Is(err, lookup.ErrNoContainer) || err.Error() != want {
		t.Errorf("a cgroup that is gone: %v, want %s", err, want)
	}
}

// Of two sandboxes the ready one counts, or else the one with the greater attempt, or else the newest, in any order.
func TestLabelsOfTheNewestSandbox(t *testing.T) {
	for name, pair := range map[string][2]pleg.SandboxStatus{ // the second counts
		"created later": {{Attempt: 1, CreatedAt: time.Unix(1, 0)}, {Attempt: 1, CreatedAt: time.Unix(2, 0)}},
		"attempt":       {{Attempt: 1, CreatedAt: time.Unix(2, 0)}, {Attempt: 2, CreatedAt: time.Unix(1, 0)}},
		"ready":         {{Attempt: 2, CreatedAt: time.Unix(2, 0)}, {Attempt: 1, CreatedAt: time.Unix(1, 0), Ready: true}},
		"both ready":    {{Attempt: 1, CreatedAt: time.Unix(1, 0), Ready: true}, {Attempt: 2, CreatedAt: time.Unix(2, 0), Ready: true}},
	} {
		pair[0].ID, pair[1].ID, pair[1].Labels = "other", "it", map[string]string{"app": "web"}
		for _, sandboxes := range [][]*pleg.SandboxStatus{{&pair[0], &pair[1]}, {&pair[1], &pair[0]}} {
			x := containerindex.NewIndex(containerindex.Source{})
			x.Set(&pleg.PodStatus{UID: "web", Containers: []*pleg.ContainerStatus{{ID: pleg.ContainerID(c1)}}, Sandboxes: sandboxes})
			c, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(c1)})
			if err != nil || c.PodLabels["app"] != "web" {
				t.Errorf("%s: labels %v, %v, first listed %s", name, c.PodLabels, err, sandboxes[0].ID)
			}
		}
	}
}

// A prefix that two listed containers share names neither.
func TestListAnswersForAPrefix(t *testing.T) {
	x := containerindex.NewIndex(containerindex.Source{Uninspected: func(time.Time) []*pleg.Pod {
		return []*pleg.Pod{
			{UID: "a", Containers: []*pleg.Container{{ID: pleg.ContainerID(c1)}, {ID: pleg.ContainerID(c2)}}},
			{UID: "b", Containers: []*pleg.Container{{ID: pleg.ContainerID("2b" + c1[2:])}, {ID: pleg.ContainerID(c1)}, {ID: "2b2b"}}}, // c1 is in both
		}
	}})
	for prefix, want := range map[string]pleg.PodUID{c1[:6]: "a", c2[:6]: "a", c2: "a", "2b1a": "b", "2b2b": "b"} {
		if c, err := (containerindex.Host{}).Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(prefix)}); err != nil || c.PodUID != want {
			t.Errorf("Lookup of %s = %+v, %v, want pod %s", prefix, c, err, want)
		}
	}
	proc := t.TempDir() // of the containers around a process, the innermost counts
	file(t, proc, "7/cgroup", "0::/kubepods/"+c2+"/init/"+c1+"\n")
	if c, err := (containerindex.Host{Proc: proc}).Lookup(t.Context(), x, lookup.Query{PID: 7}); err != nil || string(c.ID) != c1 {
		t.Errorf("Lookup of a process = %+v, %v, want %s", c, err, c1)
	}
	_, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: "2b"})
	if want := fmt.Sprintf("look up container 2b: %v: several ids begin with 2b: give more of it", pleg.ErrInvalidOption); err == nil || err.Error() != want {
		t.Errorf("several ids: %v, want %s", err, want)
	}
	full := containerindex.NewIndex(containerindex.Source{Uninspected: func(time.Time) []*pleg.Pod {
		c := func(id string) *pleg.Container {
			return &pleg.Container{ID: pleg.ContainerID(id), Name: "name-" + id[:2], Attempt: 4, State: pleg.StateCreated, CreatedAt: time.Unix(7, 0)}
		}
		labels := map[string]string{"app": "web"}
		return []*pleg.Pod{{UID: "a", Name: "web-0", Namespace: "shop", Labels: labels, Containers: []*pleg.Container{c(c1), c(c2)}, Sandboxes: []*pleg.Container{c(sandbox)}}}
	}})
	for _, id := range []string{c2, sandbox} {
		want := lookup.Container{
			ContainerStatus: pleg.ContainerStatus{ID: pleg.ContainerID(id), Name: "name-" + id[:2], Attempt: 4, State: pleg.StateCreated, CreatedAt: time.Unix(7, 0)},
			Sandbox:         id == sandbox, PodUID: "a", PodName: "web-0", PodNamespace: "shop", PodLabels: map[string]string{"app": "web"},
		}
		if c, err := (containerindex.Host{}).Lookup(t.Context(), full, lookup.Query{Container: pleg.ContainerID(id)}); err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("Lookup of %s = %+v, %v, want %+v", id, c, err, want)
		}
	}
	for prefix, want := range map[string]error{"2b": pleg.ErrInvalidOption, "ff": lookup.ErrNotYet} {
		if c, err := (containerindex.Host{}).Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(prefix)}); !errors.Is(err, want) {
			t.Errorf("Lookup of %s = %+v, %v, want %v", prefix, c, err, want)
		}
	}
}

// A container that came back stays known, also once its removal is long ago.
func TestContainerThatCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, pod := containerindex.NewIndex(containerindex.Source{}), &pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{{ID: "c"}}}
		x.Set(pod)
		x.Delete("a")
		x.Set(pod)
		time.Sleep(2 * lookup.KeepRemoved)
		x.Delete("another")
		if c, err := (containerindex.Host{}).Lookup(t.Context(), x, lookup.Query{Container: "c"}); err != nil || !c.RemovedAt.IsZero() {
			t.Errorf("Lookup = %+v, %v", c, err)
		}
	})
}

// A container that was removed long ago is not known, although nothing has happened since.
func TestContainerRemovedLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := index()
		x.Delete("web")
		for _, step := range []struct {
			wait time.Duration
			err  error
		}{{lookup.KeepRemoved, nil}, {1, lookup.ErrNotYet}} {
			time.Sleep(step.wait)
			for _, id := range []string{c1, c1[:6]} {
				if _, err := (containerindex.Host{}).Lookup(t.Context(), x, lookup.Query{Container: pleg.ContainerID(id)}); !errors.Is(err, step.err) {
					t.Errorf("Lookup of %s %v later: %v, want %v", id, step.wait, err, step.err)
				}
			}
		}
	})
}

// Of the containers that were removed within a minute, a bounded number is kept: the last ones.
func TestRemovedContainersAreBounded(t *testing.T) {
	const kept, removed = 1024, 1100
	x := index()
	id := func(n int) pleg.ContainerID { return pleg.ContainerID(fmt.Sprintf("%064x", n)) }
	for n := range removed + 1 { // each removes the previous container
		x.Set(&pleg.PodStatus{UID: "restarts", Containers: []*pleg.ContainerStatus{{ID: id(n), State: pleg.StateRunning}}})
	}
	for n := range removed + 1 {
		_, err := containerindex.Host{}.Lookup(t.Context(), x, lookup.Query{Container: id(n)})
		if known := n >= removed-kept; (err == nil) != known {
			t.Fatalf("container %d of %d is known: %v (%v), want %v", n, removed, err == nil, err, known)
		}
	}
}
