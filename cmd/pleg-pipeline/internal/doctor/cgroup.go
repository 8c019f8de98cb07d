package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// readCgroups finds containers that the runtime calls running although their cgroup has
// no process. A runtime that lost the exit of a container reports it as running forever
// (containerd#12678), and no CRI call shows that.
func (e *examination) readCgroups(ctx context.Context, l *listed) {
	if e.Cgroups == nil || len(e.report.inspection.hung) > 0 {
		return
	}
	for _, c := range l.containers {
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || ctx.Err() != nil {
			continue
		}
		answer, err := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
		if err != nil || answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		cgroup := cgroupPath(answer.GetInfo())
		if cgroup == "" || !isEmpty(e.Cgroups, cgroup) {
			continue
		}
		s := l.owner[c.GetPodSandboxId()]
		e.report.Empty = append(e.report.Empty, EmptyContainer{
			Pod: name(s), PodUID: s.GetMetadata().GetUid(), Container: c.GetMetadata().GetName(), ID: c.GetId(), Cgroup: cgroup,
		})
	}
}

// cgroupPath returns the path of a container's cgroup below the root of the cgroups, from
// what containerd and CRI-O report if asked to be verbose; "" if it is not known.
func cgroupPath(info map[string]string) string {
	var verbose struct {
		RuntimeSpec struct {
			Linux struct {
				CgroupsPath string `json:"cgroupsPath"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if json.Unmarshal([]byte(info["info"]), &verbose) != nil {
		return ""
	}
	configured := verbose.RuntimeSpec.Linux.CgroupsPath
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

// isEmpty reports whether a cgroup of cgroup v2 exists and has no process. In v1 each
// controller has its own tree; that of pids counts.
func isEmpty(cgroups fs.FS, dir string) bool {
	events, err := fs.ReadFile(cgroups, path.Join(dir, "cgroup.events"))
	if err == nil {
		return slices.Contains(strings.Split(string(events), "\n"), "populated 0")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	procs, err := fs.ReadFile(cgroups, path.Join("pids", dir, "cgroup.procs"))
	return err == nil && len(strings.TrimSpace(string(procs))) == 0
}

func (e *examination) empty() *Finding {
	empty := e.report.Empty
	if len(empty) == 0 {
		return nil
	}
	first := empty[0]
	more := ""
	if len(empty) > 1 {
		more = fmt.Sprintf(" and %d more", len(empty)-1)
	}
	return newFinding(EmptyCgroup, Problem,
		fmt.Sprintf("%s (%s)%s: the runtime says that it runs, but its cgroup has no process", first.Pod, first.Container, more),
		fmt.Sprintf("%s (%s %s)%s: cgroup %s has no process", first.Pod, first.Container, first.ID, more, first.Cgroup),
		"the runtime lost the exit of the container and will report it as running forever: delete the pod, or stop the container (crictl stop "+view.ShortID(first.ID)+")")
}
