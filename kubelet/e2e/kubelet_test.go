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
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// image is the pod image of package lab. It is in no registry.
const image = "localhost/pleg-lab/pod:1"

var kubeletConfig = template.Must(template.New("config").Parse(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: {{.Dir}}/manifests
containerRuntimeEndpoint: {{.Endpoint}}
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
fileCheckFrequency: 2s
syncFrequency: 10s
address: 127.0.0.1
port: {{index .Ports 0}}
readOnlyPort: {{index .Ports 1}}
healthzPort: {{index .Ports 2}}
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
podLogsDir: {{.Dir}}/podlogs
resolvConf: ""
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: "1Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%", imagefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
volumePluginDir: {{.Dir}}/volplugins
`))

var manifest = template.Must(template.New("manifest").Parse(`apiVersion: v1
kind: Pod
metadata: {name: {{.Name}}, namespace: default}
spec:
  hostNetwork: true
  restartPolicy: {{.Restart}}
  terminationGracePeriodSeconds: 2
  containers:
  - name: app
    image: ` + image + `
    imagePullPolicy: Never
    args: [{{.Args}}]
`))

// kubelet runs standalone on a lab.
type kubelet struct {
	t    *testing.T
	dir  string
	port int // of /metrics and /pods
	cmd  *exec.Cmd
	// exited is closed when the process has ended.
	exited chan struct{}
}

// startKubelet runs the binary with the manifests of this many pods until the test
// ends.
func startKubelet(t *testing.T, l *lab.Lab, binary string, pods int) *kubelet {
	t.Helper()
	k := &kubelet{t: t, dir: t.TempDir(), exited: make(chan struct{})}
	// The kubelet deletes files in its working folder, so that it gets an empty one.
	for _, dir := range []string{"manifests", "podlogs", "volplugins", "cwd"} {
		must(t, os.Mkdir(filepath.Join(k.dir, dir), 0o755))
	}
	ports := freePorts(t, 3)
	k.port = ports[1]
	var config bytes.Buffer
	must(t, kubeletConfig.Execute(&config, map[string]any{"Dir": k.dir, "Endpoint": l.Endpoint(), "Ports": ports}))
	must(t, os.WriteFile(k.path("config.yaml"), config.Bytes(), 0o600))
	for i := range pods {
		k.addPod(podName(i), "Always", `"pause"`)
	}
	log, err := os.Create(k.path("log"))
	must(t, err)
	t.Cleanup(func() { _ = log.Close() })
	k.cmd = exec.Command(binary, "--config", k.path("config.yaml"), "--root-dir", k.path("root"),
		"--cert-dir", k.path("pki"), "--hostname-override", "lab", "--v", "2")
	k.cmd.Dir, k.cmd.Stdout, k.cmd.Stderr = k.path("cwd"), log, log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must(t, k.cmd.Start())
	go func() {
		defer close(k.exited)
		_ = k.cmd.Wait()
	}()
	t.Cleanup(k.stop)
	return k
}

func (k *kubelet) path(name string) string { return filepath.Join(k.dir, name) }

// addPod writes a manifest. The kubelet reads the folder every 2 s.
func (k *kubelet) addPod(name, restart, args string) {
	k.t.Helper()
	var text bytes.Buffer
	must(k.t, manifest.Execute(&text, map[string]string{"Name": name, "Restart": restart, "Args": args}))
	tmp := k.path(name)
	must(k.t, os.WriteFile(tmp, text.Bytes(), 0o600))
	must(k.t, os.Rename(tmp, filepath.Join(k.dir, "manifests", name+".yaml")))
}

func (k *kubelet) removePod(name string) {
	k.t.Helper()
	must(k.t, os.Remove(filepath.Join(k.dir, "manifests", name+".yaml")))
}

// stop ends the kubelet. The lab removes its pods.
func (k *kubelet) stop() {
	_ = k.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-k.exited:
	case <-time.After(20 * time.Second):
		_ = k.cmd.Process.Kill()
		<-k.exited
	}
	if dir := os.Getenv("KUBELET_E2E_LOGS"); dir != "" {
		if text, err := os.ReadFile(k.path("log")); err == nil {
			_ = os.WriteFile(filepath.Join(dir, filepath.Base(k.cmd.Path)+".log"), text, 0o600)
		}
	}
	k.unmount()
}

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

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}
