package cri_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// malformedTotal is the metric's text with these values in place of 0.
func malformedTotal(values map[string]int) string {
	var s strings.Builder
	s.WriteString("# HELP pleg_malformed_items_total Listed sandboxes and containers that are malformed, by reason: completed from elsewhere, or skipped.\n" +
		"# TYPE pleg_malformed_items_total counter\n")
	for _, reason := range []string{"duplicate_id", "no_id", "no_metadata", "no_pod", "no_pod_uid"} {
		fmt.Fprintf(&s, "pleg_malformed_items_total{reason=%q} %d\n", reason, values[reason])
	}
	return s.String()
}

func TestMalformedItemHidesNoOther(t *testing.T) {
	noMetadata := sandbox("bad", "u9", 0, 1)
	noMetadata.Metadata = nil
	containerNoMetadata := container("bad", "good", 0, 1)
	containerNoMetadata.Metadata = nil
	for _, tt := range []struct {
		name       string
		sandboxes  []*runtimeapi.PodSandbox
		containers []*runtimeapi.Container
		reason     string
		times      int
	}{
		{"sandbox without id", []*runtimeapi.PodSandbox{sandbox("", "u9", 0, 1)}, nil, "no_id", 1},
		{"container without id", nil, []*runtimeapi.Container{container("", "good", 0, 1)}, "no_id", 1},
		{"empty item", []*runtimeapi.PodSandbox{{}}, []*runtimeapi.Container{{}}, "no_id", 2},
		{"sandbox without metadata", []*runtimeapi.PodSandbox{noMetadata}, nil, "no_metadata", 1},
		{"container without metadata", nil, []*runtimeapi.Container{containerNoMetadata}, "no_metadata", 1},
		{"sandbox without pod uid", []*runtimeapi.PodSandbox{sandbox("bad", "", 0, 1)}, nil, "no_pod_uid", 1},
		{"sandbox twice", []*runtimeapi.PodSandbox{sandbox("good", "u9", 1, 1)}, nil, "duplicate_id", 1},
		{"container twice", nil, []*runtimeapi.Container{container("c1", "good", 2, 9)}, "duplicate_id", 1},
		{"container three times", nil, []*runtimeapi.Container{container("c1", "good", 1, 1), container("c1", "good", 1, 1)}, "duplicate_id", 2},
		{"container of no pod", nil, []*runtimeapi.Container{container("bad", "gone", 0, 1)}, "no_pod", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			var log bytes.Buffer
			fake := lists(append([]*runtimeapi.PodSandbox{sandbox("good", "good", 0, 1)}, tt.sandboxes...),
				append([]*runtimeapi.Container{container("c1", "good", 1, 1)}, tt.containers...))
			client := connect(t, fake, cri.Options{Registerer: registry, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			for list := 1; list <= 3; list++ {
				pods, err := client.ListPods(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				want := "good ns-good/name-good map[app:web of:good] [good< name-good#1 running@1] c1<good name-c1#1 running@1\n"
				if got := show(pods); got != want {
					t.Errorf("list %d: got %s, want one pod: %s", list, got, want)
				}
				if err := testutil.GatherAndCompare(registry, strings.NewReader(malformedTotal(map[string]int{tt.reason: tt.times * list})),
					"pleg_malformed_items_total"); err != nil {
					t.Errorf("list %d: %v", list, err)
				}
			}
			if got := strings.Count(log.String(), "reason="+tt.reason+"\n"); got != 1 {
				t.Errorf("%d warnings of the same item, want 1:\n%s", got, log.String())
			}
		})
	}
}

// An item without metadata still counts. Its name and pod come from the list before,
// or else from the kubelet's labels, and its state from the item.
func TestMalformedItemIsCompleted(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		good := lists([]*runtimeapi.PodSandbox{sandbox("s", "u", 0, 1)}, []*runtimeapi.Container{container("c", "s", 1, 1), container("gone", "s", 1, 2)})
		fake := &fakeRuntime{list: good.list}
		client := connect(t, fake, cri.Options{UnaryLists: !streamed})
		show := func() string {
			t.Helper()
			pods, err := client.ListPods(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return show(pods)
		}
		before := show()
		badSandbox, badContainer, newcomer := sandbox("s", "u", 0, 1), container("c", "s", 2, 1), container("new", "s", 1, 3)
		second, kubelets := sandbox("s2", "u", 1, 0), container("new2", "s", 1, 4)
		second.Labels = map[string]string{"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "name-s", "io.kubernetes.pod.namespace": "ns-s"}
		kubelets.Labels = map[string]string{"io.kubernetes.container.name": "main"}
		kubelets.Annotations = map[string]string{"io.kubernetes.container.restartCount": "3"}
		badSandbox.Metadata, badContainer.Metadata, newcomer.Metadata, second.Metadata, kubelets.Metadata = nil, nil, nil, nil, nil
		fake.list = lists([]*runtimeapi.PodSandbox{badSandbox, second}, []*runtimeapi.Container{badContainer, newcomer, kubelets}).list
		want := "u ns-s/name-s map[app:web of:s] [s< name-s#1 running@1] [s2< name-s#0 exited@0] new2<s main#3 running@4 c<s name-c#1 exited@1\n"
		for range 2 {
			if got := show(); got != want {
				t.Errorf("without metadata: %s, want %s", got, want)
			}
		}
		fake.list = good.list
		if got := show(); got != before {
			t.Errorf("with metadata again: %s, want the same as before: %s", got, before)
		}
	}
}

func TestMalformedItemsAreLoggedWithLimit(t *testing.T) {
	var log bytes.Buffer
	n := 0
	fake := &fakeRuntime{}
	client := connect(t, fake, cri.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		bad := make([]*runtimeapi.Container, 500)
		for i := range bad {
			n++
			bad[i] = container(fmt.Sprintf("bad-%d", n), "gone", 0, 1)
		}
		fake.list = lists(nil, bad).list
		if _, err := client.ListPods(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(log.String(), "\n"); got != 1001 {
		t.Errorf("%d lines for 1500 malformed items, want 1000 and one about the limit", got)
	}
}
