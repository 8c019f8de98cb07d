package simruntime

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels and annotations that the kubelet sets (kuberuntime/labels.go, v1.37).
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationRestartCount = "io.kubernetes.container.restartCount"
)

// sandboxConfig returns the request of a kubelet.
func sandboxConfig(spec PodSpec) *cri.PodSandboxConfig {
	labels := map[string]string{}
	maps.Copy(labels, spec.Labels)
	labels[labelPodName] = spec.Name
	labels[labelPodNamespace] = spec.Namespace
	labels[labelPodUID] = spec.UID
	annotations := map[string]string{"kubernetes.io/config.seen": "2026-01-02T03:04:05Z", "kubernetes.io/config.source": "api"}
	maps.Copy(annotations, spec.Annotations)
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: spec.Name, Uid: spec.UID, Namespace: spec.Namespace},
		Labels:   labels, Annotations: annotations,
		LogDirectory: "/var/log/pods/" + spec.Namespace + "_" + spec.Name + "_" + spec.UID,
	}
}

func containerConfig(sb *sandbox, spec ContainerSpec) *cri.ContainerConfig {
	spec.Image = cmp.Or(spec.Image, "registry.example/"+sb.meta.GetNamespace()+"/"+spec.Name+":1.4.2")
	attempt := strconv.FormatUint(uint64(spec.Attempt), 10)
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: spec.Name, Attempt: spec.Attempt},
		Image:    &cri.ImageSpec{Image: spec.Image, UserSpecifiedImage: spec.Image},
		Labels: map[string]string{
			labelContainerName: spec.Name,
			labelPodName:       sb.meta.GetName(),
			labelPodNamespace:  sb.meta.GetNamespace(),
			labelPodUID:        sb.meta.GetUid(),
		},
		Annotations: map[string]string{
			"io.kubernetes.container.hash":                     imageRef(spec.Name + spec.Image)[len("sha256:"):][:8],
			annotationRestartCount:                             attempt,
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
		LogPath: spec.Name + "/" + attempt + ".log",
	}
}

// nextConfig returns the configuration of c with another attempt.
func nextConfig(c *container, attempt uint32) *cri.ContainerConfig {
	n := strconv.FormatUint(uint64(attempt), 10)
	annotations := maps.Clone(c.annotations)
	if _, ok := annotations[annotationRestartCount]; ok {
		annotations[annotationRestartCount] = n
	}
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.meta.GetName(), Attempt: attempt},
		Image:    c.image, Labels: c.labels, Annotations: annotations,
		LogPath: c.meta.GetName() + "/" + n + ".log",
	}
}

// imageRef is a digest that depends on the image name alone.
func imageRef(image string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image)))
}

// newID draws an id as runtimes make them: 64 hexadecimal digits.
func newID(rng *rand.Rand) string {
	var b [32]byte
	fill(rng, b[:])
	return hex.EncodeToString(b[:])
}

// newUID draws a version 4 UUID.
func newUID(rng *rand.Rand) string {
	var b [16]byte
	fill(rng, b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func fill(rng *rand.Rand, b []byte) {
	for word := range slices.Chunk(b, 8) {
		binary.LittleEndian.PutUint64(word, rng.Uint64())
	}
}

// nameChars are those that Kubernetes uses in generated names.
const nameChars = "bcdfghjklmnpqrstvwxz2456789"

func suffix(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(nameChars[rng.IntN(len(nameChars))])
	}
	return b.String()
}

// newPodName draws the name of a pod of a Deployment.
func newPodName(rng *rand.Rand) string {
	return "web-" + suffix(rng, 9) + "-" + suffix(rng, 5)
}

// workload is an owner of pods in a realistic cluster.
type workload struct {
	namespace  string
	name       string
	containers []string
	weight     int
	job        bool // ends by itself and is not restarted
	daemon     bool // its pods have no replica set hash in their names
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

// drawWorkload picks one by weight.
func drawWorkload(rng *rand.Rand) workload {
	total := 0
	for _, w := range workloads {
		total += w.weight
	}
	n := rng.IntN(total)
	for _, w := range workloads {
		if n -= w.weight; n < 0 {
			return w
		}
	}
	panic("simruntime: weights do not add up")
}

// podSpec draws a pod of the workload.
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
		spec.Containers = append(spec.Containers, ContainerSpec{Name: c})
	}
	return spec
}
