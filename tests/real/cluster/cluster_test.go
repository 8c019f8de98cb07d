//go:build linux

package cluster_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

const (
	token = "administrator"
	// kubeconfig is the file with which every client reaches the API server.
	kubeconfig = "/run/kubeconfig"
)

// The API server makes its own certificate, which nobody needs to verify here: the
// network contains only this machine.
const kubeconfigText = `apiVersion: v1
kind: Config
current-context: cluster
clusters: [{name: cluster, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: administrator, user: {token: ` + token + `}}]
contexts: [{name: cluster, context: {cluster: cluster, user: administrator}}]
`

// cluster is a control plane and one node.
type cluster struct {
	t      *testing.T
	node   *node
	kustom string // the folder with a copy of deploy/, for overlays beside it
}

// startCluster returns a cluster whose node is ready for pods.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, kustom: t.TempDir()}
	kit.Must(t, os.CopyFS(filepath.Join(c.kustom, "deploy"), os.DirFS("../../../deploy")))
	kit.Must(t, os.WriteFile(kubeconfig, []byte(kubeconfigText), 0o600))
	c.startControlPlane()
	c.node = startNode(t)
	c.awaitNode()
	return c
}

func (c *cluster) startControlPlane() {
	t := c.t
	t.Helper()
	start(t, program(t, "etcd"), "--data-dir", "/var/lib/etcd", "--listen-peer-urls", "http://127.0.0.1:2380",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379")
	key := serviceAccountKey(t)
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	kit.Must(t, os.WriteFile(tokens, []byte(token+",administrator,administrator,system:masters\n"), 0o600))
	server := start(t, program(t, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--secure-port=6443",
		"--advertise-address="+nodeIP,
		"--cert-dir="+t.TempDir(), "--service-account-issuer=https://127.0.0.1:6443", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--token-auth-file="+tokens, "--authorization-mode=Node,RBAC",
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged", "--kubelet-preferred-address-types=InternalIP")

	process.Eventually(t, "API server", func(ctx context.Context) error {
		if err := server.Alive(); err != nil {
			t.Fatal(err)
		}
		_, err := c.try(ctx, "get", "--raw", "/readyz")
		return err
	})
	start(t, program(t, "kube-controller-manager"), "--kubeconfig="+kubeconfig, "--service-account-private-key-file="+key,
		"--leader-elect=false", "--use-service-account-credentials=false")
	start(t, program(t, "kube-scheduler"), "--kubeconfig="+kubeconfig, "--leader-elect=false")
}

func serviceAccountKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.Must(t, err)
	path := filepath.Join(t.TempDir(), "service-account.key")
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	kit.Must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	return path
}

// kubectl runs kubectl, which must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.try(process.Bounded(c.t), args...)
	kit.Must(c.t, err)
	return out
}

func (c *cluster) try(ctx context.Context, args ...string) (string, error) {
	return process.Output(ctx, program(c.t, "kubectl"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// get reads objects of the API server, such as a list of pods.
func (c *cluster) get(ctx context.Context, into any, args ...string) error {
	out, err := c.try(ctx, append([]string{"get", "--output", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// overlay writes a kustomization beside deploy/ and returns its folder.
func (c *cluster) overlay(name, text string) string {
	c.t.Helper()
	dir := filepath.Join(c.kustom, name)
	kit.Must(c.t, os.MkdirAll(dir, 0o755))
	text = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + text
	kit.Must(c.t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	return dir
}

// apply applies a folder and returns once the DaemonSet is ready everywhere.
func (c *cluster) apply(dir string) {
	c.t.Helper()
	c.kubectl("apply", "-k", dir)
	c.kubectl("-n", "pleg-pipeline", "rollout", "status", "daemonset/pleg-pipeline", fmt.Sprintf("--timeout=%v", process.WaitTimeout))
}
