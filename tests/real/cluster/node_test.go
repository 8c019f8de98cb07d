//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

const (
	nodeName = "node-1"
	// nodeIP is also the gateway of the pods, so that the kubelet's probes reach them.
	nodeIP           = "10.244.0.1"
	containerdSocket = "/run/containerd/containerd.sock"
)

// Without restrict_oom_score_adj, runc fails on a machine that does not grant
// CAP_SYS_RESOURCE. Everything else is at the paths of a real node.
const containerdConfig = `version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '` + lab.Image + `'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = '/run/cni'
[plugins.'io.containerd.internal.v1.opt']
  path = '/run/opt'
`

const network = `{"cniVersion": "0.4.0", "name": "cluster", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/22", "rangeStart": "10.244.0.10", "gateway": "` + nodeIP + `"}]]}
}]}`

const kubeletConfig = lab.KubeletConfig + `containerRuntimeEndpoint: unix://` + containerdSocket + `
address: ` + nodeIP + `
volumePluginDir: /var/lib/kubelet-plugins
`

// node is a containerd and a kubelet.
type node struct {
	t                   *testing.T
	containerd, kubelet *process.Process
}

// startNode runs a node with the released kubelet and the images of the test.
func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t}
	for _, args := range [][]string{{"link", "add", "pods", "type", "bridge"}, {"address", "add", nodeIP + "/22", "dev", "pods"}, {"link", "set", "pods", "up"}} {
		_, err := process.Output(process.Bounded(t), "ip", args...)
		kit.Must(t, err)
	}
	kit.Must(t, os.MkdirAll("/run/cni", 0o755))
	kit.Must(t, os.WriteFile("/run/cni/cluster.conflist", []byte(network), 0o600))
	kit.Must(t, os.WriteFile("/run/containerd.toml", []byte(containerdConfig), 0o600))
	n.startContainerd()

	image := filepath.Join(t.TempDir(), "pod.tar")
	kit.Must(t, lab.WriteImage(image, program(t, "podimage")))
	n.importImage(image, "--label", "io.cri-containerd.pinned=pinned")
	for _, version := range []string{"v0.1.0", "v0.1.1"} {
		n.importImage(filepath.Join(program(t, "image-"+version), "pleg-pipeline-"+version+"-image.tar"))
	}
	n.startKubelet("kubelet-stock")
	return n
}

func (n *node) startContainerd() {
	n.t.Helper()
	n.containerd = start(n.t, program(n.t, "containerd"), "--config", "/run/containerd.toml")
	process.Eventually(n.t, "containerd", func(ctx context.Context) error {
		_, err := n.ctr(ctx, "version")
		return err
	})
}

func (n *node) ctr(ctx context.Context, args ...string) (string, error) {
	return process.Output(ctx, program(n.t, "ctr"), append([]string{"-n", "k8s.io"}, args...)...)
}

func (n *node) importImage(archive string, flags ...string) {
	n.t.Helper()
	_, err := n.ctr(process.Bounded(n.t), append(append([]string{"images", "import"}, flags...), archive)...)
	kit.Must(n.t, err)
}

// restartContainerd kills containerd and starts it again. The pods survive.
func (n *node) restartContainerd() {
	n.t.Helper()
	n.containerd.Kill()
	n.startContainerd()
}

// startKubelet replaces the running kubelet, if any. The pods survive.
func (n *node) startKubelet(name string) {
	n.t.Helper()
	if n.kubelet != nil {
		_ = n.kubelet.Stop()
	}
	config := filepath.Join(n.t.TempDir(), "kubelet.yaml")
	kit.Must(n.t, os.WriteFile(config, []byte(kubeletConfig), 0o600))
	n.kubelet = start(n.t, program(n.t, name), "--config", config, "--kubeconfig", kubeconfig,
		"--hostname-override", nodeName, "--node-ip", nodeIP, "--v", "2")
}

// awaitNode returns once the scheduler may put pods on the node.
func (c *cluster) awaitNode() {
	c.t.Helper()
	process.Eventually(c.t, "node", func(ctx context.Context) error {
		if _, err := c.try(ctx, "get", "serviceaccount", "default"); err != nil {
			return err
		}
		ready, err := c.try(ctx, "get", "node", nodeName, "--output", `jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}`)
		if err == nil && ready != "True" {
			err = fmt.Errorf("node is ready, or has taints: %s", ready)
		}
		return err
	})
}

// traces returns the traces of a daemon's pod on a node, by kind.
func (n *node) traces(ctx context.Context, podUID, containerID string) (map[string][]string, error) {
	found := make(map[string][]string)
	for kind, patterns := range map[string][]string{
		"socket": {"/run/pleg-pipeline/*"},
		"folder": {"/var/lib/kubelet/pods/" + podUID},
		"log":    {"/var/log/pods/pleg-pipeline_*", "/var/log/containers/pleg-pipeline*"},
		"cgroup": {"/sys/fs/cgroup/*/k8s.io/" + containerID, "/sys/fs/cgroup/k8s.io/" + containerID},
	} {
		found[kind] = nil
		for _, pattern := range patterns {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				return nil, err
			}
			found[kind] = append(found[kind], paths...)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	found["mount"] = nil
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, podUID) || strings.Contains(line, containerID) {
			found["mount"] = append(found["mount"], line)
		}
	}
	out, err := exec.CommandContext(ctx, "pgrep", "-a", "-x", "pleg-pipeline").Output()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		return nil, err // pgrep fails if there is no such process
	}
	found["process"] = slices.Collect(strings.Lines(string(out)))
	containers, err := n.ctr(ctx, "containers", "list", "--quiet", `labels."io.kubernetes.pod.namespace"==pleg-pipeline`)
	if err != nil {
		return nil, err
	}
	found["container"] = strings.Fields(containers)
	return found, nil
}
