//go:build linux

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	e2epod "k8s.io/kubernetes/test/e2e/framework/pod"
	"k8s.io/kubernetes/test/e2e_node/criproxy"
	imageutils "k8s.io/kubernetes/test/utils/image"
	admissionapi "k8s.io/pod-security-admission/api"
)

var _ = SIGDescribe("PLEG when a container status takes 100 ms", feature.CriProxy, framework.WithSerial(), func() {
	f := framework.NewDefaultFramework("pleg-slow-status")
	f.NamespacePodSecurityLevel = admissionapi.LevelPrivileged

	ginkgo.BeforeEach(func() {
		if err := resetCRIProxyInjector(e2eCriProxy); err != nil {
			ginkgo.Skip("Skip the test since the CRI Proxy is undefined.")
		}
		ginkgo.DeferCleanup(func() error { return resetCRIProxyInjector(e2eCriProxy) })
	})

	// One status after the other takes 22 s. On a small machine the runtime takes longer for 110 ends, so relists
	// fail until the last one. Each pod keeps a container that runs: the end of a pod is much more work.
	ginkgo.It("110 containers that end together are reported within 15 s", func(ctx context.Context) {
		const pods = 110
		dir, err := os.MkdirTemp("", "pleg-slow-status")
		framework.ExpectNoError(err)
		ginkgo.DeferCleanup(os.RemoveAll, dir)
		fifo := filepath.Join(dir, "end")
		framework.ExpectNoError(unix.Mkfifo(fifo, 0o600))

		count := func(is func(v1.PodStatus) bool) func() int {
			return func() int {
				list, err := f.ClientSet.CoreV1().Pods(f.Namespace.Name).List(ctx, metav1.ListOptions{})
				framework.ExpectNoError(err)
				n := 0
				for _, pod := range list.Items {
					if is(pod.Status) {
						n++
					}
				}
				return n
			}
		}
		running := func(status v1.PodStatus) bool { return status.Phase == v1.PodRunning }
		ended := func(status v1.PodStatus) bool {
			return slices.ContainsFunc(status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.State.Terminated != nil })
		}
		for i := range pods {
			e2epod.NewPodClient(f).Create(ctx, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("waits-%d", i)},
				Spec: v1.PodSpec{
					RestartPolicy: v1.RestartPolicyNever,
					HostNetwork:   true, // addresses and their removal are not measured
					Containers: []v1.Container{{
						Name: "waits", Image: busyboxImage, Command: []string{"cat", "/fifo/end"},
						VolumeMounts: []v1.VolumeMount{{Name: "fifo", MountPath: "/fifo"}},
					}, {Name: "stays", Image: imageutils.GetPauseImageName()}},
					Volumes: []v1.Volume{{Name: "fifo", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}},
				},
			})
		}
		gomega.Eventually(ctx, count(running), 15*time.Minute, time.Second).Should(gomega.Equal(pods))

		var ending atomic.Bool
		ending.Store(true)
		framework.ExpectNoError(addCRIProxyInjector(e2eCriProxy, func(call string) error {
			if call == criproxy.ContainerStatus {
				time.Sleep(100 * time.Millisecond)
			}
			if call == criproxy.ListPodSandbox && ending.Load() {
				return errors.New("containers are ending")
			}
			return nil
		}))
		// Each container opens the fifo for reading, which waits for a writer, and ends when that closes it.
		writer, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		framework.ExpectNoError(err)
		time.Sleep(2 * time.Second)
		framework.ExpectNoError(writer.Close())
		runtime, _, err := getCRIClient(ctx)
		framework.ExpectNoError(err)
		gomega.Eventually(ctx, func() ([]*runtimeapi.Container, error) {
			return runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
				LabelSelector: map[string]string{"io.kubernetes.container.name": "waits", "io.kubernetes.pod.namespace": f.Namespace.Name},
				State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
			})
		}, 5*time.Minute, time.Second).Should(gomega.HaveLen(pods))
		ending.Store(false)
		began := time.Now()
		gomega.Eventually(ctx, count(ended), 5*time.Minute, 500*time.Millisecond).Should(gomega.Equal(pods))
		took := time.Since(began)
		framework.Logf("The last of %d ends was reported after %.1f s", pods, took.Seconds())
		gomega.Expect(took).To(gomega.BeNumerically("<", 15*time.Second))
	})
})
