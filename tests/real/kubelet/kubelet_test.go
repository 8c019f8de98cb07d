//go:build linux

package e2e_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

var kubeletConfig = template.Must(template.New("config").Parse(lab.KubeletConfig + `staticPodPath: {{.Dir}}/manifests
containerRuntimeEndpoint: {{.Endpoint}}
cgroupRoot: {{.Cgroup}}
maxPods: 1000
fileCheckFrequency: 2s
syncFrequency: 10s
address: 127.0.0.1
port: {{index .Ports 0}}
readOnlyPort: {{index .Ports 1}}
healthzPort: {{index .Ports 2}}
healthzBindAddress: 127.0.0.1
podLogsDir: {{.Dir}}/podlogs
volumePluginDir: {{.Dir}}/volplugins
featureGates: {EventedPLEG: {{.Events}}}
`))

var manifest = template.Must(template.New("manifest").Parse(`apiVersion: v1
kind: Pod
metadata: {name: {{.Name}}, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers:
  - name: app
    image: ` + lab.Image + `
    imagePullPolicy: Never
    args: [pause]
`))

// kubelet runs standalone on a lab.
type kubelet struct {
	t      *testing.T
	binary string
	events bool // with the gate EventedPLEG on
	dir    string
	ports  []int
	*process.Process
}

// newKubelet returns a kubelet of this kind from bin, with the manifests of this many
// pods.
func newKubelet(t *testing.T, bin, kind string, pods int) *kubelet {
	t.Helper()
	removeLogLinks(t)
	t.Cleanup(func() { removeLogLinks(t) })
	k := &kubelet{t: t, dir: process.Dir(t), ports: freePorts(t, 3)}
	k.become(bin, kind)
	t.Cleanup(k.unmount)
	// The kubelet deletes files in its working folder, so that it gets an empty folder.
	for _, dir := range []string{"manifests", "podlogs", "volplugins", "cwd"} {
		kit.Must(t, os.Mkdir(k.path(dir), 0o755))
	}
	for i := range pods {
		k.addPod(podName(i))
	}
	return k
}

// become chooses the kind of kubelet that start runs.
func (k *kubelet) become(bin, kind string) {
	k.t.Helper()
	program, events := strings.CutSuffix(kind, withEvents)
	k.binary, k.events = filepath.Join(bin, "kubelet-"+program), events
	if _, err := os.Stat(k.binary); err != nil {
		k.t.Fatalf("run build.sh first: %v", err)
	}
}

// start runs the kubelet on a runtime, with its pods in a cgroup, until stop is called or the test
// ends.
func (k *kubelet) start(endpoint, cgroup string) {
	k.t.Helper()
	var config bytes.Buffer
	kit.Must(k.t, kubeletConfig.Execute(&config, map[string]any{
		"Dir": k.dir, "Endpoint": endpoint, "Cgroup": cgroup, "Ports": k.ports, "Events": k.events,
	}))
	kit.Must(k.t, os.WriteFile(k.path("config.yaml"), config.Bytes(), 0o600))
	cmd := exec.Command(k.binary, "--config", k.path("config.yaml"), "--root-dir", k.path("root"),
		"--cert-dir", k.path("pki"), "--hostname-override", "lab", "--v", "2")
	cmd.Dir = k.path("cwd")
	var err error
	k.Process, err = process.Start(cmd, k.path("log"))
	kit.Must(k.t, err)
	k.t.Cleanup(k.stop)
}

func (k *kubelet) path(name string) string { return filepath.Join(k.dir, name) }

// addPod writes a manifest. The kubelet reads the folder every 2 s.
func (k *kubelet) addPod(name string) {
	k.t.Helper()
	var text bytes.Buffer
	kit.Must(k.t, manifest.Execute(&text, map[string]string{"Name": name}))
	tmp := k.path(name)
	kit.Must(k.t, os.WriteFile(tmp, text.Bytes(), 0o600))
	kit.Must(k.t, os.Rename(tmp, filepath.Join(k.dir, "manifests", name+".yaml")))
}

func (k *kubelet) removePod(name string) {
	k.t.Helper()
	kit.Must(k.t, os.Remove(filepath.Join(k.dir, "manifests", name+".yaml")))
}

// stop ends the kubelet. Its pods stay; the lab removes them.
func (k *kubelet) stop() { _ = k.Stop() }

// unmount removes the volumes of pods, so that the folder can be deleted.
func (k *kubelet) unmount() {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], k.dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
}

func podName(i int) string { return fmt.Sprintf("pod-%02d", i) }

// removeLogLinks removes the links that kubelets made to logs in folders of this test that are gone. The
// next kubelet would ask its runtime for each of these containers, and log an error.
func removeLogLinks(t *testing.T) {
	t.Helper()
	kit.Must(t, os.MkdirAll("/var/log/containers", 0o755)) // no setting of the kubelet changes it
	find := exec.Command("find", "/var/log/containers", "-lname", os.TempDir()+"/pleg-*", "-xtype", "l", "-delete")
	if out, err := find.CombinedOutput(); err != nil {
		t.Fatalf("remove links to logs: %v: %s", err, out)
	}
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		kit.Must(t, err)
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}
