package containerindex

import (
	"slices"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// parseID returns the id in a text that people paste: as Kubernetes prints it (containerd://ID),
// with white space or quotes around it.
func parseID(text string) pleg.ContainerID {
	text = strings.Trim(text, " \t\r\n\"'`,")
	if _, id, ok := strings.Cut(text, "://"); ok {
		text = id
	}
	return pleg.ContainerID(text)
}

// idsIn returns the possible ids of containers in the path of a cgroup, the innermost first: a
// container may make cgroups of its own, and a node may be a container.
func idsIn(path string) (ids []pleg.ContainerID) {
	for _, part := range slices.Backward(strings.Split(path, "/")) {
		if id := idOf(part); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// monitors are programs beside a container whose cgroups are named after it too, as
// crio-conmon-ID.scope.
var monitors = []string{"conmon", "conmonrs", "monitor", "shim"}

// idOf returns the id of the container whose cgroup has a directory of this name: the id alone, or
// after the name of the runtime, as in cri-containerd-ID.scope, crio-ID or
// kubepods-podUID.slice:cri-containerd:ID. Other names that contain the id of a container are not
// its cgroup: cgroups of monitors, and systemd's mount units (...-ID-rootfs.mount).
func idOf(name string) pleg.ContainerID {
	name = strings.TrimSuffix(name, ".scope")
	at := strings.LastIndexAny(name, "-:") + 1
	if !isID(name[at:]) {
		return ""
	}
	prefix := strings.FieldsFunc(name[:at], func(r rune) bool { return r == '-' || r == ':' })
	if len(prefix) > 0 && slices.Contains(monitors, prefix[len(prefix)-1]) {
		return ""
	}
	return pleg.ContainerID(name[at:])
}

// idLength is the length of the ids of all CRI runtimes, in hexadecimal digits.
const idLength = 64

// isID reports whether text is a full id.
func isID(text string) bool { return len(text) == idLength && isHex(text) }

func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }

// begins reports whether an id is the wanted id, or a full id that begins with it.
func begins(id, wanted pleg.ContainerID) bool {
	return id == wanted || strings.HasPrefix(string(id), string(wanted)) && isID(string(id))
}
