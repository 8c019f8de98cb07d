package cri_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

type listCase struct {
	name       string
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	want       string
}

func listCases() []listCase {
	const ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	const created, running, exited, unknown = runtimeapi.ContainerState_CONTAINER_CREATED,
		runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN
	date, never := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano(), time.Time{}.UnixNano() // as containerd writes it
	return []listCase{
		{
			name:       "times",
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s1", "u1", ready, date)},
			containers: []*runtimeapi.Container{container("c1", "s1", running, never)},
			want: fmt.Sprintf("u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#%d running@1767323045000000006] c1<s1 name-c1#%d running@0\n",
				uint32(date), uint32(never)),
		},
		{
			name:       "the sandbox takes precedence over the labels",
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s1", "u1", ready, 1)},
			containers: []*runtimeapi.Container{labelled(container("c1", "s1", running, 2), "u2")},
			want:       "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 running@1] c1<s1 name-c1#2 running@2\n",
		},
		{
			name:       "labels name the pod of a container whose sandbox is not listed",
			containers: []*runtimeapi.Container{labelled(container("c1", "s1", running, 2), "u1")},
			want:       "u1 space/labelled map[] c1<s1 name-c1#2 running@2\n",
		},
		{
			name:       "labels name the pod of a container whose sandbox is skipped",
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s1", "", ready, 1), ofPod(sandbox("s2", "u1", ready, 1), "space", "labelled")},
			containers: []*runtimeapi.Container{labelled(container("c1", "s1", running, 2), "u1")},
			want:       "u1 space/labelled map[app:web of:s2] [s2< labelled#1 running@1] c1<s1 name-c1#2 running@2\n",
		},
		{
			name: "sandboxes of one pod have the labels of the newest",
			sandboxes: []*runtimeapi.PodSandbox{
				ofPod(sandbox("s1", "u1", notReady, 1), "shop", "web"), ofPod(sandbox("s3", "u1", ready, 3), "shop", "web"), ofPod(sandbox("s2", "u1", notReady, 2), "shop", "web"),
			},
			containers: []*runtimeapi.Container{container("c1", "s1", exited, 4), container("c3", "s3", running, 5)},
			want: "u1 shop/web map[app:web of:s3] [s3< web#3 running@3] [s2< web#2 exited@2] [s1< web#1 exited@1]" +
				" c3<s3 name-c3#5 running@5 c1<s1 name-c1#4 exited@4\n",
		},
		{
			name:      "newest first, then by id; no creation time is the oldest",
			sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", ready, 1)},
			containers: []*runtimeapi.Container{
				container("c0", "s1", created, 0), container("cb", "s1", created, 5),
				container("ca", "s1", created, 5), container("c9", "s1", created, 9),
			},
			want: "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 running@1] c9<s1 name-c9#9 created@9" +
				" ca<s1 name-ca#5 created@5 cb<s1 name-cb#5 created@5 c0<s1 name-c0#0 created@0\n",
		},
		{
			name: "pods of one UID differ in the name or in the namespace",
			sandboxes: []*runtimeapi.PodSandbox{
				ofPod(sandbox("s3", "u1", ready, 3), "other", "web"), ofPod(sandbox("s1", "u1", ready, 1), "shop", "web"), ofPod(sandbox("s2", "u1", ready, 2), "shop", "db"),
			},
			want: "u1 shop/web map[app:web of:s1] [s1< web#1 running@1]\n" +
				"u1@other.web other/web map[app:web of:s3] [s3< web#3 running@3]\n" +
				"u1@shop.db shop/db map[app:web of:s2] [s2< db#2 running@2]\n",
		},
		{
			name: "a half of the pod's name is missing",
			sandboxes: []*runtimeapi.PodSandbox{
				ofPod(sandbox("s1", "u1", ready, 1), "shop", "web"), ofPod(sandbox("s2", "u1", ready, 2), "", "web"), ofPod(sandbox("s3", "u1", ready, 3), "shop", ""),
			},
			want: "u1 shop/web map[app:web of:s1] [s1< web#1 running@1]\n" +
				"u1@.web /web map[app:web of:s2] [s2< web#2 running@2]\n" +
				"u1@shop. shop/ map[app:web of:s3] [s3< #3 running@3]\n",
		},
		{
			name:      "states this version has no name for are unknown",
			sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 7, 1)},
			containers: []*runtimeapi.Container{
				container("c1", "s1", unknown, 1), container("c2", "s1", 44, 2),
			},
			want: "u1 ns-s1/name-s1 map[app:web of:s1] [s1< name-s1#1 unknown@1] c2<s1 name-c2#2 unknown@2 c1<s1 name-c1#1 unknown@1\n",
		},
	}
}

func TestListPods(t *testing.T) {
	for _, tt := range listCases() {
		t.Run(tt.name, func(t *testing.T) {
			client := connect(t, &rawruntime.Runtime{Sandboxes: tt.sandboxes, Containers: tt.containers}, cri.Options{})
			wantList(t, client, tt.want)
			clear(listPods(t, client)) // the slice belongs to the caller
			wantList(t, client, tt.want)
		})
	}
}

func TestMalformedItemHidesNoOther(t *testing.T) {
	noMetadata := sandbox("bad", "u9", 0, 1)
	noMetadata.Metadata = nil
	containerNoMetadata := container("bad", "good", 0, 1)
	containerNoMetadata.Metadata = nil
	kubelets := badContainer(container("bad", "good", 1, 1))
	kubelets.Labels = map[string]string{"io.kubernetes.container.name": "main"}
	sandboxWith := func(field ...byte) []*runtimeapi.PodSandbox {
		return []*runtimeapi.PodSandbox{withField(sandbox("c\ufffd", "u9", 0, 1), field)}
	}
	containerWith := func(field ...byte) []*runtimeapi.Container {
		return []*runtimeapi.Container{withField(container("c\ufffd", "good", 1, 1), field)}
	}
	for _, tt := range []struct {
		name       string
		sandboxes  []*runtimeapi.PodSandbox
		containers []*runtimeapi.Container
		reason     string
		times      int
	}{
		{"sandbox without id", []*runtimeapi.PodSandbox{sandbox("", "u9", 0, 1)}, nil, "no_id", 1},
		{"container without id", nil, []*runtimeapi.Container{container("", "good", 0, 1)}, "no_id", 1},
		{"empty sandbox", []*runtimeapi.PodSandbox{{}}, nil, "no_id", 1},
		{"empty container", nil, []*runtimeapi.Container{{}}, "no_id", 1},
		{"sandbox without metadata", []*runtimeapi.PodSandbox{noMetadata}, nil, "no_metadata", 1},
		{"container without metadata", nil, []*runtimeapi.Container{containerNoMetadata}, "no_metadata", 1},
		{"sandbox without pod uid", []*runtimeapi.PodSandbox{sandbox("bad", "", 0, 1)}, nil, "no_pod_uid", 1},
		{"sandbox twice", []*runtimeapi.PodSandbox{sandbox("good", "u9", 0, 1)}, nil, "duplicate_id", 1},
		{"container twice", nil, []*runtimeapi.Container{container("c1", "good", 0, 9)}, "duplicate_id", 1},
		{"container three times", nil, []*runtimeapi.Container{container("c1", "good", 1, 1), container("c1", "good", 1, 1)}, "duplicate_id", 2},
		{"container of no pod", nil, []*runtimeapi.Container{container("bad", "gone", 0, 1)}, "no_pod", 1},
		{"text in the name of a sandbox", []*runtimeapi.PodSandbox{badSandbox(sandbox("bad", "u9", 0, 1))}, nil, "not_utf8", 1},
		{"text in the id of a sandbox", sandboxWith(badID...), nil, "not_utf8", 1},
		{"text in the name of a container", nil, []*runtimeapi.Container{badContainer(container("bad", "good", 1, 1))}, "not_utf8", 1},
		{"text in the id of a container", nil, containerWith(badID...), "not_utf8", 1},
		{"text in the image of a container", nil, containerWith(0x22, 0x03, 0x0a, 0x01, 0xff), "not_utf8", 1},
		{"container twice, once with text and another state", nil, []*runtimeapi.Container{badContainer(container("c1", "good", 2, 1))}, "not_utf8", 2},
		{"text in a container without id", nil, []*runtimeapi.Container{badContainer(container("", "good", 1, 1))}, "no_id", 1},
		{"text beside the kubelet's labels", nil, []*runtimeapi.Container{kubelets}, "not_utf8", 1},
	} {
		kit.Bubble(t, tt.name, func(t *testing.T) {
			hidesNoOther(t, &rawruntime.Runtime{
				Sandboxes:  append([]*runtimeapi.PodSandbox{sandbox("good", "good", 0, 1)}, tt.sandboxes...),
				Containers: append([]*runtimeapi.Container{container("c1", "good", 1, 1)}, tt.containers...),
			}, tt.reason, tt.times)
		})
	}
}

// hidesNoOther requires that each list contains the good pod, as it was, that the malformed items are
// counted, and that each is logged once.
func hidesNoOther(t *testing.T, fake *rawruntime.Runtime, reason string, times int) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	var log kit.Log
	client := connect(t, fake, cri.Options{Registerer: registry, Logger: log.Logger()})
	var first []*pleg.Pod
	for list := 1; list <= 3; list++ {
		pods := listPods(t, client)
		if got, want := show(pods), "good ns-good/name-good map[app:web of:good] [good< name-good#1 running@1] c1<good name-c1#1 running@1\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if first == nil {
			first = pods
		}
		if !slices.Equal(pods, first) {
			t.Errorf("list %d has another pod, although nothing has changed", list)
		}
		kit.RequireMetric(t, registry, float64(times*list), "pleg_malformed_items_total")
	}
	synctest.Wait() // for the log
	log.RequireLines(t, 1, "reason="+reason+"\n")
}

// An item without metadata, or with text that is not UTF-8, still counts. Its name and pod
// come from the previous list, or else from the kubelet's labels, and its state from the item.
func TestMalformedItemIsCompleted(t *testing.T) {
	sandboxes := []*runtimeapi.PodSandbox{sandbox("s", "u", 0, 1)}
	containers := []*runtimeapi.Container{container("c", "s", 1, 1), container("gone", "s", 1, 2)}
	fake := &rawruntime.Runtime{Sandboxes: sandboxes, Containers: containers}
	client := connect(t, fake, cri.Options{})
	before := show(listPods(t, client))
	bare, bareContainer, newcomer := sandbox("s", "u", 0, 1), container("c", "s", 2, 1), container("new", "s", 1, 3)
	second, kubelets := sandbox("s2", "u", 1, 0), container("new2", "s", 1, 4)
	second.Labels = map[string]string{"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "name-s", "io.kubernetes.pod.namespace": "ns-s"}
	kubelets.Labels = map[string]string{"io.kubernetes.container.name": "main"}
	kubelets.Annotations = map[string]string{"io.kubernetes.container.restartCount": "13"}
	bare.Metadata, bareContainer.Metadata, newcomer.Metadata, second.Metadata, kubelets.Metadata = nil, nil, nil, nil, nil
	alone := proto.CloneOf(kubelets)
	alone.Id, alone.CreatedAt = "alone", 9
	fake.Containers = append(slices.Clone(containers), alone) // nothing else has changed
	wantList(t, client, strings.Replace(before, " gone<s", " alone<s main#13 running@9 gone<s", 1))
	fake.Sandboxes, fake.Containers = []*runtimeapi.PodSandbox{bare, second}, []*runtimeapi.Container{bareContainer, newcomer, kubelets}
	want := "u ns-s/name-s map[app:web of:s] [s< name-s#1 running@1] [s2< name-s#0 exited@0] new2<s main#13 running@4 c<s name-c#1 exited@1\n"
	wantList(t, client, want)
	wantList(t, client, want)
	if last := listPods(t, client); !slices.Equal(listPods(t, client), last) {
		t.Error("the pod is another one, although nothing has changed")
	}
	fake.Sandboxes, fake.Containers = sandboxes, containers
	wantList(t, client, before) // with metadata again
	relabelled := sandbox("s", "u", 0, 1)
	relabelled.Labels["of"] = "S" // of the same length
	fake.Sandboxes = []*runtimeapi.PodSandbox{relabelled}
	wantList(t, client, strings.Replace(before, "of:s", "of:S", 1))
	fake.Sandboxes = sandboxes
	wantList(t, client, before)
	fake.Sandboxes = []*runtimeapi.PodSandbox{badSandbox(sandbox("s", "u", 0, 1))}
	fake.Containers = []*runtimeapi.Container{badContainer(container("c", "s", 2, 1)), container("gone", "s", 1, 2)}
	want = strings.Replace(before, "name-c#1 running", "name-c#1 exited", 1)
	wantList(t, client, want)
	wantList(t, client, want)
}

func TestMalformedItemsAreLoggedWithLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		n := 0
		fake := &rawruntime.Runtime{}
		client := connect(t, fake, cri.Options{Logger: log.Logger()})
		for range 3 {
			bad := make([]*runtimeapi.Container, 500)
			for i := range bad {
				n++
				bad[i] = container(fmt.Sprintf("bad-%d", n), "gone", 0, 1)
			}
			fake.Containers = bad
			listPods(t, client)
		}
		synctest.Wait()               // for the log
		log.RequireLines(t, 1001, "") // for 1500 malformed items: 1000, and one about the limit
		log.RequireLines(t, 1, `level=WARN msg="malformed item in list" containerID=bad-7 podSandboxID=gone name=name-bad-7 reason=no_pod`+"\n")
		log.RequireLines(t, 1, `level=WARN msg="malformed item limit reached; counting without logging"`+"\n")
	})
}
