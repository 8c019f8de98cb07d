package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/shim"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// settle is the time in which a runtime handles the exit of a container. If the cgroup is still
// empty afterwards and the container still counts as running, the exit was lost.
const settle = 2 * time.Second

// readCgroups finds containers that the runtime calls running although they have ended. A runtime
// that lost the exit of a container reports it as running forever (containerd#12678), and no CRI
// call shows that. An empty cgroup alone proves nothing: gVisor and Kata keep the processes of a
// container elsewhere, zeropod scales one to zero.
func (e *examination) readCgroups(ctx context.Context, items []item) {
	if e.Cgroups == nil || slices.ContainsFunc(e.calls, func(c madeCall) bool { return c.ID != "" && c.hangs() }) {
		return
	}
	var suspects []item
	for _, c := range items {
		if c.runs && c.Method == "ContainerStatus" && e.lostCgroup(ctx, c) != "" {
			suspects = append(suspects, c)
		}
	}
	if len(suspects) == 0 {
		return
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return
	}
	for _, c := range suspects {
		if cgroup := e.lostCgroup(ctx, c); cgroup != "" {
			e.report.Empty = append(e.report.Empty, EmptyContainer{Pod: c.Pod, PodUID: c.PodUID, Container: c.Container, ID: c.ID, Cgroup: cgroup})
		}
	}
}

// findStuck finds pods whose shim is stopped or has ended, or that have a container that has ended.
// The end of a container of such a shim is the shim's matter.
func (e *examination) findStuck(items []item) {
	if e.Proc != nil {
		e.stuck = shim.Find(e.Proc, statuses(items), e.report.At)
	}
	for i := range e.stuck {
		stuck := &e.stuck[i]
		e.report.Empty = slices.DeleteFunc(e.report.Empty, func(c EmptyContainer) bool {
			if c.PodUID == string(stuck.UID) {
				stuck.Container, stuck.ID = c.Container, pleg.ContainerID(c.ID)
			}
			return c.PodUID == string(stuck.UID)
		})
	}
	for _, c := range e.report.Empty {
		namespace, name, _ := strings.Cut(c.Pod, "/")
		e.stuck = append(e.stuck, pleg.Stuck{
			UID: pleg.PodUID(c.PodUID), Namespace: namespace, Name: name, Since: e.report.At, Container: c.Container, ID: pleg.ContainerID(c.ID),
		})
	}
}

// statuses returns the pods of items, in their order.
func statuses(items []item) (pods []*pleg.PodStatus) {
	known := make(map[string]*pleg.PodStatus)
	for _, i := range items {
		p := known[i.PodUID]
		if p == nil {
			namespace, name, _ := strings.Cut(i.Pod, "/")
			p = &pleg.PodStatus{UID: pleg.PodUID(i.PodUID), Namespace: namespace, Name: name}
			known[i.PodUID] = p
			pods = append(pods, p)
		}
		switch {
		case i.Method == "PodSandboxStatus":
			p.Sandboxes = append(p.Sandboxes, &pleg.SandboxStatus{ID: pleg.ContainerID(i.ID), Ready: i.runs})
		case i.runs:
			p.Containers = append(p.Containers, &pleg.ContainerStatus{ID: pleg.ContainerID(i.ID), State: pleg.StateRunning})
		}
	}
	return pods
}

// lostCgroup returns the cgroup of a container that the runtime calls running although it has
// ended; "" for any other, also if that is not certain.
func (e *examination) lostCgroup(ctx context.Context, c item) string {
	if ctx.Err() != nil {
		return ""
	}
	answer, _ := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID, Verbose: true})
	if answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return ""
	}
	var info verbose
	if json.Unmarshal([]byte(answer.GetInfo()["info"]), &info) != nil {
		return ""
	}
	if !info.keepsProcesses() && (info.RuntimeType != "" || !c.plain || !e.hasEnded(info.Pid)) {
		return ""
	}
	cgroup := info.cgroupPath()
	if cgroup == "" || e.exists(info.Pid) || !isEmpty(e.Cgroups, cgroup) {
		return ""
	}
	return cgroup
}

// verbose is what containerd and CRI-O report of a container if asked to be verbose. Only
// containerd has the type of the runtime and its options.
type verbose struct {
	Pid            int    `json:"pid"`
	RuntimeType    string `json:"runtimeType"`
	RuntimeOptions struct {
		BinaryName string `json:"binary_name"`
	} `json:"runtimeOptions"`
	RuntimeSpec struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
}

var (
	// plainTypes are the shims of containerd for runtimes that are called as runc is, and
	// plainBinaries the runtimes among them that keep the processes of a container in its cgroup.
	plainTypes    = map[string]bool{"io.containerd.runc.v1": true, "io.containerd.runc.v2": true, "io.containerd.runtime.v1.linux": true}
	plainBinaries = map[string]bool{"": true, "runc": true, "crun": true, "youki": true, "nvidia-container-runtime": true}
	// plainHandlers are the handlers that do so unless their name misleads. The name alone is not
	// enough: the default may be any runtime.
	plainHandlers = map[string]bool{"": true, "runc": true, "crun": true}
)

// keepsProcesses reports whether the runtime is known to keep the processes of a container in its
// cgroup.
func (v *verbose) keepsProcesses() bool {
	binary := v.RuntimeOptions.BinaryName
	if binary != "" {
		binary = path.Base(binary)
	}
	return plainTypes[v.RuntimeType] && plainBinaries[binary]
}

// cgroupPath returns the path of a container's cgroup below the root of the cgroups; "" if it is
// not info.
func (v *verbose) cgroupPath() string {
	configured := v.RuntimeSpec.Linux.CgroupsPath
	slice, rest, systemd := strings.Cut(configured, ":")
	if !systemd {
		return strings.Trim(path.Clean("/"+configured), "/")
	}
	prefix, id, ok := strings.Cut(rest, ":")
	if !ok {
		return ""
	}
	return path.Join(slicePath(slice), prefix+"-"+id+".scope")
}

// slicePath returns the path of a systemd slice: "a-b.slice" is in "a.slice".
func slicePath(slice string) string {
	var folders []string
	name := strings.TrimSuffix(slice, ".slice")
	for i, r := range name {
		if r == '-' {
			folders = append(folders, name[:i]+".slice")
		}
	}
	return path.Join(append(folders, slice)...)
}

// exists reports whether there is a process with this number that is no zombie. It may be another
// process by now: then nothing is certain.
func (e *examination) exists(pid int) bool {
	if e.Proc == nil {
		return false
	}
	p, _ := process.Read(e.Proc, pid)
	return p != nil && p.State != ""
}

// hostPIDs is the pid namespace of the host (PROC_PID_INIT_INO in linux/proc_ns.h).
const hostPIDs = "pid:[4026531836]"

// hasEnded reports whether the process that the runtime takes for a container's first is gone.
// Only the host's pid namespace shows that.
func (e *examination) hasEnded(pid int) bool {
	if e.Proc == nil || pid <= 0 {
		return false
	}
	namespace, err := fs.ReadLink(e.Proc, "self/ns/pid")
	return err == nil && namespace == hostPIDs && !e.exists(pid)
}

// isEmpty reports whether a cgroup exists and neither it nor a cgroup in it has a process. In
// cgroup v1 each controller has its own tree; the tree of pids counts.
func isEmpty(cgroups fs.FS, dir string) bool {
	events, err := fs.ReadFile(cgroups, path.Join(dir, "cgroup.events"))
	if err == nil {
		return slices.Contains(strings.Split(string(events), "\n"), "populated 0")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	dir = path.Join("pids", dir)
	if _, err := fs.Stat(cgroups, path.Join(dir, "cgroup.procs")); err != nil {
		return false
	}
	err = fs.WalkDir(cgroups, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		procs, err := fs.ReadFile(cgroups, name)
		if err == nil && len(strings.TrimSpace(string(procs))) > 0 {
			err = errPopulated
		}
		return err
	})
	return err == nil
}

var errPopulated = errors.New("the cgroup has a process")
