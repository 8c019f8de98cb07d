package simruntime

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Labels and annotations that the kubelet sets (kuberuntime/labels.go, v1.37).
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
)

// kubeletLabels returns the labels of a sandbox, or of a container if that is named.
func kubeletLabels(meta *cri.PodSandboxMetadata, container string) map[string]string {
	labels := map[string]string{
		labelPodName: meta.GetName(), labelPodNamespace: meta.GetNamespace(), labelPodUID: meta.GetUid(),
	}
	if container != "" {
		labels[labelContainerName] = container
	}
	return labels
}

func containerAnnotations(name string, attempt uint32, image string) map[string]string {
	return map[string]string{
		"io.kubernetes.container.hash":                     imageRef(name + image)[len("sha256:"):][:8],
		"io.kubernetes.container.restartCount":             strconv.FormatUint(uint64(attempt), 10),
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.pod.terminationGracePeriod":         "30",
	}
}

func logPath(pod *cri.PodSandboxMetadata, container string, attempt uint32) string {
	return fmt.Sprintf("/var/log/pods/%s_%s_%s/%s/%d.log", pod.GetNamespace(), pod.GetName(), pod.GetUid(), container, attempt)
}

// imageRef is a digest that depends on the image name alone.
func imageRef(image string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image)))
}

// newID draws an id as runtimes make them: 64 hexadecimal digits.
func newID(rng *rand.Rand) pleg.ContainerID {
	var b [32]byte
	fill(rng, b[:])
	return pleg.ContainerID(hex.EncodeToString(b[:]))
}

// newUID draws a version 4 UUID.
func newUID(rng *rand.Rand) pleg.PodUID {
	var b [16]byte
	fill(rng, b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return pleg.PodUID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

func fill(rng *rand.Rand, b []byte) {
	for word := range slices.Chunk(b, 8) {
		binary.LittleEndian.PutUint64(word, rng.Uint64())
	}
}

// nameChars are the characters that Kubernetes uses in generated names.
const nameChars = "bcdfghjklmnpqrstvwxz2456789"

func suffix(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(nameChars[rng.IntN(len(nameChars))])
	}
	return b.String()
}

// workload is an owner of pods in a realistic cluster.
type workload struct {
	namespace  string
	name       string
	containers []string
	weight     int
	job        bool // ends by itself and is not restarted
	daemon     bool // no replica set hash is in the names of its pods
}

var workloads = []workload{
	{namespace: "shop", name: "web", containers: []string{"nginx", "metrics"}, weight: 6},
	{namespace: "shop", name: "cart", containers: []string{"cart"}, weight: 4},
	{namespace: "shop", name: "checkout", containers: []string{"checkout", "envoy"}, weight: 4},
	{namespace: "shop", name: "catalog", containers: []string{"catalog"}, weight: 3},
	{namespace: "default", name: "api", containers: []string{"api", "envoy"}, weight: 5},
	{namespace: "default", name: "worker", containers: []string{"worker"}, weight: 4},
	{namespace: "monitoring", name: "node-exporter", containers: []string{"node-exporter"}, weight: 1, daemon: true},
	{namespace: "kube-system", name: "coredns", containers: []string{"coredns"}, weight: 1},
	{namespace: "kube-system", name: "kube-proxy", containers: []string{"kube-proxy"}, weight: 1, daemon: true},
	{namespace: "batch", name: "report", containers: []string{"report"}, weight: 4, job: true},
	{namespace: "batch", name: "thumbnails", containers: []string{"resize"}, weight: 3, job: true},
}

// lots contains each workload as often as its weight says.
var lots = func() (all []workload) {
	for _, w := range workloads {
		all = append(all, slices.Repeat([]workload{w}, w.weight)...)
	}
	return all
}()

func drawWorkload(rng *rand.Rand) workload { return lots[rng.IntN(len(lots))] }

func (w workload) podSpec(rng *rand.Rand) PodSpec {
	name := w.name
	switch {
	case w.job:
		name += "-" + strconv.Itoa(29_400_000+rng.IntN(100_000))
	case !w.daemon:
		name += "-" + suffix(rng, 9)
	}
	spec := PodSpec{
		UID: newUID(rng), Namespace: w.namespace, Name: name + "-" + suffix(rng, 5),
		Labels: map[string]string{"app": w.name, "app.kubernetes.io/name": w.name},
	}
	if w.job {
		spec.Labels["batch.kubernetes.io/job-name"] = name
	}
	for _, c := range w.containers {
		spec.Containers = append(spec.Containers, pleg.ContainerStatus{Name: c})
	}
	return spec
}
