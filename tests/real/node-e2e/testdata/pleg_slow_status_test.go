//go:build linux

package e2enode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	e2epod "k8s.io/kubernetes/test/e2e/framework/pod"
	"k8s.io/kubernetes/test/e2e_node/criproxy"
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

	// One status after the other takes 11 s.
	ginkgo.It("110 pods that end together are reported within 9 s", func(ctx context.Context) {
		const pods = 110
		dir, err := os.MkdirTemp("", "pleg-slow-status")
		framework.ExpectNoError(err)
		ginkgo.DeferCleanup(os.RemoveAll, dir)
		fifo := filepath.Join(dir, "end")
		framework.ExpectNoError(unix.Mkfifo(fifo, 0o600))

		phases := func() map[v1.PodPhase]int {
			list, err := f.ClientSet.CoreV1().Pods(f.Namespace.Name).List(ctx, metav1.ListOptions{})
			framework.ExpectNoError(err)
			n := make(map[v1.PodPhase]int)
			for _, pod := range list.Items {
				n[pod.Status.Phase]++
			}
			return n
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
					}},
					Volumes: []v1.Volume{{Name: "fifo", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}},
				},
			})
		}
		gomega.Eventually(ctx, phases, 15*time.Minute, time.Second).Should(gomega.HaveKeyWithValue(v1.PodRunning, pods))

		framework.ExpectNoError(addCRIProxyInjector(e2eCriProxy, func(call string) error {
			if call == criproxy.ContainerStatus {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}))
		// Each container opens the fifo for reading, which waits for a writer, and ends when that closes it.
		writer, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		framework.ExpectNoError(err)
		time.Sleep(2 * time.Second)
		framework.ExpectNoError(writer.Close())
		ended := time.Now()
		gomega.Eventually(ctx, phases, 5*time.Minute, 100*time.Millisecond).Should(gomega.HaveKeyWithValue(v1.PodSucceeded, pods))
		took := time.Since(ended)
		framework.Logf("The last of %d pods was reported %.1f s after their end", pods, took.Seconds())
		gomega.Expect(took).To(gomega.BeNumerically("<", 9*time.Second))
	})
})
