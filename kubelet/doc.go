// Package kubelet puts the pipeline in the place of the kubelet's GenericPLEG.
//
// [New] takes what NewMainKubelet has at hand, in the same order as
// NewGenericPLEG, so that one expression of kubelet.go changes:
//
//	klet.pleg = pipelinepleg.New(logger, klet.containerRuntime, eventChannel,
//		genericRelistDuration, podCache, clock.RealClock{})
//
// The kubelet's runtime, status type and pod cache stay what they are: pods and
// statuses pass through the pipeline in the kubelet's own words, and the pod
// cache is written beside the pipeline's.
//
// # Time
//
// GenericPLEG moves the time of the pod cache once every changed pod has been
// inspected. Here pods are inspected beside each other and beside the next
// list, so a pod that is still being inspected must not be covered by that
// time. While one is, the pods that a list covers are given its time one by
// one, and the time of the cache follows the pod that is furthest behind.
//
// # Concurrency
//
// GetPodStatus of different pods is called concurrently, and beside GetPods and
// GetPod. The kubelet's runtime manager allows that.
//
// # Evented PLEG
//
// It writes the pod cache itself and cannot be combined with this one: leave
// that branch of NewMainKubelet as it is.
package kubelet
