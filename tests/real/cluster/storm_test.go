//go:build linux

package cluster_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// minRestarts is how often each crash loop restarts before the storm ends: twice, 10 s and 20 s apart.
const minRestarts = 2

// storm is the work of one namespace: the objects of storm.yaml.
type storm struct {
	*cluster
	namespace string
}

func (c *cluster) startStorm(namespace string) *storm {
	c.t.Helper()
	c.kubectl("create", "namespace", namespace)
	s := &storm{c, namespace}
	process.Eventually(c.t, "service account", func(ctx context.Context) error {
		_, err := c.try(ctx, "get", "serviceaccount", "default", "--namespace", namespace)
		return err
	})
	s.do("apply", "--filename", "storm.yaml")
	return s
}

// do runs kubectl in the namespace.
func (s *storm) do(args ...string) {
	s.t.Helper()
	s.kubectl(append([]string{"--namespace", s.namespace}, args...)...)
}

// change rolls one deployment, scales the second, and deletes the third and a job.
func (s *storm) change() {
	s.t.Helper()
	s.do("patch", "deployment", "web-0", "--patch", `{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`)
	s.do("scale", "deployment", "web-1", "--replicas", "1")
	s.do("delete", "deployment/web-2", "job/job-0")
}

// settle returns once the deployments have all their pods, the jobs have ended, and the
// crash loops have restarted.
func (s *storm) settle() {
	s.t.Helper()
	process.Eventually(s.t, "end of the storm", func(ctx context.Context) error {
		var ds appsv1.DeploymentList
		if err := s.get(ctx, &ds, "deployments", "--namespace", s.namespace); err != nil {
			return err
		}
		for _, d := range ds.Items {
			if st := d.Status; st.ObservedGeneration != d.Generation || st.UpdatedReplicas != *d.Spec.Replicas ||
				st.Replicas != *d.Spec.Replicas || st.AvailableReplicas != *d.Spec.Replicas {
				return fmt.Errorf("deployment %s: %+v", d.Name, st)
			}
		}
		var js batchv1.JobList
		if err := s.get(ctx, &js, "jobs", "--namespace", s.namespace); err != nil {
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
	var pods corev1.PodList
	if err := s.get(ctx, &pods, "pods", "--namespace", s.namespace); err != nil {
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

// end deletes the namespace and returns once it is gone.
func (s *storm) end() {
	s.t.Helper()
	s.kubectl("delete", "namespace", s.namespace)
}
