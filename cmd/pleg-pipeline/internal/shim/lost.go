package shim

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lostTries is how many answers of the runtime are compared with a container whose process was not
	// found. The process must have ended at all of them: a runtime needs time for an exit.
	lostTries = 2
	// mostAsked containers are asked for in one look, for at most askTimeout.
	mostAsked  = 32
	askTimeout = 2 * time.Second
)

// askLost finds containers that the runtime calls running although they had ended before anybody
// looked. A runtime that lost the exit of a container reports it as running forever
// (containerd#12678), and no list shows that. An empty cgroup alone proves nothing: gVisor and Kata
// keep the processes of a container elsewhere, zeropod scales one to zero.
func (w *Watcher) askLost(ctx context.Context, runtime grpc.ClientConnInterface, now time.Time) {
	if w.o.Cgroups == nil || len(w.unfound) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, id := range w.unfound[:min(len(w.unfound), mostAsked)] {
		c := w.wanted[id]
		pid, err := w.lost(ctx, runtimeapi.NewRuntimeServiceClient(runtime), id)
		if err != nil {
			continue // the runtime is asked again after the next search
		}
		c.asked++
		if pid == 0 {
			continue
		}
		if c.lost++; c.lost == lostTries {
			c.first, c.ended, c.ask, c.next = pid, now, now.Add(agreesWithin), time.Time{}
		}
	}
}

// lost returns the former PID of a container's first process, if the runtime calls the container
// running although it has ended; 0 otherwise, also if that is not certain. It returns an error if the
// runtime does not answer.
func (w *Watcher) lost(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, id pleg.ContainerID) (int, error) {
	answer, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: string(id), Verbose: true})
	if err != nil || answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return 0, err
	}
	var info verbose
	if json.Unmarshal([]byte(answer.GetInfo()["info"]), &info) != nil {
		return 0, nil
	}
	if !info.keepsProcesses() {
		if info.RuntimeType != "" || !w.hasEnded(info.Pid) {
			return 0, nil
		}
		sandbox, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: info.SandboxID})
		if err != nil || !plainHandlers[sandbox.GetStatus().GetRuntimeHandler()] {
			return 0, err
		}
	}
	cgroup := info.cgroupPath()
	if cgroup == "" || w.exists(info.Pid) || !isEmpty(w.o.Cgroups, cgroup) && (!w.hasEnded(info.Pid) || !isGone(w.o.Cgroups, cgroup)) {
		return 0, nil
	}
	return max(info.Pid, 1), nil
}

// verbose is the verbose status of a container in containerd and CRI-O. Only that of containerd
// contains the type of the runtime and its options.
type verbose struct {
	Pid            int    `json:"pid"`
	SandboxID      string `json:"sandboxID"`
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
	// plainHandlers are the handlers of such runtimes, unless their name misleads. The name alone
	// is not enough: the default may be any runtime.
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

// cgroupPath returns the path of a container's cgroup below the root of the cgroups; "" if the
// status does not contain it.
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
	for i, r := range slice {
		if r == '-' {
			folders = append(folders, slice[:i]+".slice")
		}
	}
	return path.Join(append(folders, slice)...)
}

// exists reports whether there is a process with this number that is no zombie. It may be another
// process by now: then nothing is certain.
func (w *Watcher) exists(pid int) bool {
	p, _ := process.Read(w.o.Proc, pid)
	return p != nil && p.State != ""
}

// hostPIDs is the pid namespace of the host (PROC_PID_INIT_INO in linux/proc_ns.h).
const hostPIDs = "pid:[4026531836]"

// hasEnded reports whether the process that the runtime takes for a container's first is gone.
// Only the host's pid namespace shows that.
func (w *Watcher) hasEnded(pid int) bool {
	namespace, _ := fs.ReadLink(w.o.Proc, "self/ns/pid") // "" if it is not known
	return pid > 0 && namespace == hostPIDs && !w.exists(pid)
}

// isGone reports whether a scope of systemd is gone although the slice of its pod exists: systemd
// removes a scope with its last process.
func isGone(cgroups fs.FS, scope string) bool {
	if !strings.HasSuffix(scope, ".scope") {
		return false
	}
	for _, root := range []string{"", "pids"} {
		_, slice := fs.Stat(cgroups, path.Join(root, path.Dir(scope)))
		if _, err := fs.Stat(cgroups, path.Join(root, scope)); slice == nil {
			return errors.Is(err, fs.ErrNotExist)
		}
	}
	return false
}

// isEmpty reports whether a cgroup exists and neither it nor a cgroup in it contains a process.
// cgroup v1 uses a tree for each controller; the tree of pids counts.
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
