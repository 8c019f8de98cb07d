// Package kubelet replaces the kubelet's GenericPLEG by the pipeline.
//
// [New] takes the parameters of NewGenericPLEG, so that one expression of kubelet.go
// changes. [NewWithOptions] also takes the timeout of the kubelet's configuration:
//
//	klet.pleg = pipelinepleg.NewWithOptions(
//		pipelinepleg.Options{RuntimeRequestTimeout: kubeCfg.RuntimeRequestTimeout.Duration},
//		klet.containerRuntime, eventChannel, genericRelistDuration, podCache, clock.RealClock{})
//
// The kubelet's runtime, status type and pod cache do not change: the pipeline
// carries the kubelet's own pods and statuses and also writes the kubelet's pod
// cache.
//
// # Time
//
// GenericPLEG sets the time of the pod cache once it has inspected every changed
// pod. The pipeline inspects several pods at the same time, also during the next
// list. The time of the cache must not include a pod that is still being inspected.
// During such an inspection each other pod of a list gets the list's time individually, and the
// cache gets the time of the oldest pod.
//
// # Concurrency
//
// The pipeline calls GetPodStatus of different pods concurrently, also during
// GetPods and GetPod. The kubelet's runtime manager allows this.
//
// # Evented PLEG
//
// The kubelet's EventedPLEG requests relists of single pods and works with this package
// as it does with GenericPLEG.
package kubelet
