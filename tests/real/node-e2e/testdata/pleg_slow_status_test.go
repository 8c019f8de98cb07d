//go:build linux

package e2enode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

	// One status after the other takes 22 s. On small machines the runtime takes longer for 110 ends, so
	// that the time of relists is measured. Each pod keeps a container that runs: the end of a pod is much more work.
	ginkgo.It("110 containers that end together cost less than 15 s of relists", func(ctx context.Context) {
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
		relists := func() float64 {
			metrics, err := getKubeletMetrics(ctx)
			framework.ExpectNoError(err)
			samples := metrics["kubelet_pleg_relist_duration_seconds_sum"]
			gomega.Expect(samples).To(gomega.HaveLen(1))
			return float64(samples[0].Value)
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
		began, before := time.Now(), relists()
		gomega.Eventually(ctx, count(ended), 5*time.Minute, time.Second).Should(gomega.Equal(pods))
		spent := relists() - before
		framework.Logf("Relists took %.1f s, the last of %d containers was reported %.1f s after their end", spent, pods, time.Since(began).Seconds())
		gomega.Expect(spent).To(gomega.BeNumerically("<", 15))
	})
})
