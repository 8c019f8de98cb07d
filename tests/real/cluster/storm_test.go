//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

const (
	deployments, replicas = 3, 3
	jobs, completions     = 4, 2
	crashLoops            = 3
	// minRestarts is how often each crash loop restarts before the storm ends: twice,
	// 10 s and 20 s apart.
	minRestarts = 2
)

// storm is the work of one namespace.
type storm struct {
	t         *testing.T
	api       kubernetes.Interface
	namespace string
}

func (c *cluster) newStorm(namespace string) *storm {
	c.t.Helper()
	s := &storm{t: c.t, api: c.api, namespace: namespace}
	_, err := c.api.CoreV1().Namespaces().Create(process.Bounded(c.t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	kit.Must(c.t, err)
	process.Eventually(c.t, "service account", func(ctx context.Context) error {
		_, err := c.api.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return s
}

// podTemplate returns a pod of one container. args are arguments of the podimage program.
func podTemplate(app string, restart corev1.RestartPolicy, args ...string) corev1.PodTemplateSpec {
	no, grace := false, int64(2)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &grace,
			RestartPolicy:                 restart,
			Containers:                    []corev1.Container{{Name: "app", Image: lab.Image, ImagePullPolicy: corev1.PullNever, Args: args}},
		},
	}
}

// createPods creates deployments, jobs that succeed and fail, and crash loops.
func (s *storm) createPods() {
	s.t.Helper()
	ctx := process.Bounded(s.t)
	for i := range deployments {
		_, err := s.api.AppsV1().Deployments(s.namespace).Create(ctx, deployment(fmt.Sprintf("web-%d", i)), metav1.CreateOptions{})
		kit.Must(s.t, err)
	}
	for i := range jobs {
		_, err := s.api.BatchV1().Jobs(s.namespace).Create(ctx, job(fmt.Sprintf("job-%d", i), i%2*3), metav1.CreateOptions{})
		kit.Must(s.t, err)
	}
	for i := range crashLoops {
		name := fmt.Sprintf("crash-%d", i)
		template := podTemplate(name, corev1.RestartPolicyAlways, "exit", "1", "300ms")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec}
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: lab.Image, ImagePullPolicy: corev1.PullNever, Args: []string{"exit", "0", "100ms"}}}
		_, err := s.api.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{})
		kit.Must(s.t, err)
	}
}

func deployment(name string) *appsv1.Deployment {
	template := podTemplate(name, corev1.RestartPolicyAlways, "pause")
	n := int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}
}

// job ends with an exit code in each of its pods.
func job(name string, code int) *batchv1.Job {
	two, once := int32(completions), int32(1)
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Completions: &two, Parallelism: &two, BackoffLimit: &once,
		Template: podTemplate(name, corev1.RestartPolicyNever, "exit", fmt.Sprint(code), "500ms"),
	}}
}

// change rolls one deployment, scales the second, and deletes the third and a job.
func (s *storm) change() {
	s.t.Helper()
	ctx := process.Bounded(s.t)
	apps := s.api.AppsV1().Deployments(s.namespace)
	s.update("web-0", func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"revision": "2"}
	})
	s.update("web-1", func(d *appsv1.Deployment) { *d.Spec.Replicas = 1 })
	kit.Must(s.t, apps.Delete(ctx, "web-2", metav1.DeleteOptions{}))
	background := metav1.DeletePropagationBackground
	kit.Must(s.t, s.api.BatchV1().Jobs(s.namespace).Delete(ctx, "job-0", metav1.DeleteOptions{PropagationPolicy: &background}))
}

// update retries, because the controller writes the deployment too.
func (s *storm) update(name string, change func(*appsv1.Deployment)) {
	s.t.Helper()
	process.Eventually(s.t, "update of "+name, func(ctx context.Context) error {
		d, err := s.api.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(d)
		_, err = s.api.AppsV1().Deployments(s.namespace).Update(ctx, d, metav1.UpdateOptions{})
		return err
	})
}

// settle returns once the deployments have all their pods, the jobs have ended, and the
// crash loops have restarted.
func (s *storm) settle() {
	s.t.Helper()
	process.Eventually(s.t, "end of the storm", func(ctx context.Context) error {
		ds, err := s.api.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, d := range ds.Items {
			if st := d.Status; st.ObservedGeneration != d.Generation || st.UpdatedReplicas != *d.Spec.Replicas ||
				st.Replicas != *d.Spec.Replicas || st.AvailableReplicas != *d.Spec.Replicas {
				return fmt.Errorf("deployment %s: %+v", d.Name, st)
			}
		}
		js, err := s.api.BatchV1().Jobs(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, j := range js.Items {
			if j.Status.Active > 0 || j.Status.Succeeded+j.Status.Failed == 0 {
				return fmt.Errorf("job %s: %+v", j.Name, j.Status)
			}
		}
		return s.podsSettled(ctx)
	})
}

func (s *storm) podsSettled(ctx context.Context) error {
	pods, err := s.api.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is being deleted", p.Name)
		}
		if len(p.Spec.InitContainers) > 0 && (len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount < minRestarts) {
			return fmt.Errorf("pod %s: %+v", p.Name, p.Status.ContainerStatuses)
		}
	}
	return nil
}

// deleteNamespace deletes the namespace and returns once it is gone.
func (s *storm) deleteNamespace() {
	s.t.Helper()
	kit.Must(s.t, s.api.CoreV1().Namespaces().Delete(process.Bounded(s.t), s.namespace, metav1.DeleteOptions{}))
	process.Eventually(s.t, "end of the namespace", func(ctx context.Context) error {
		_, err := s.api.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("namespace %s still exists", s.namespace)
		}
		return ignoreNotFound(err)
	})
}
