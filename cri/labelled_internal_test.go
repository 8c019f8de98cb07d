package cri

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzStatuses decodes any two answers with the labels of the first and demands
// what the generated types make of the second alone.
func FuzzStatuses(f *testing.F) {
	sandbox := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: "s", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"b": "2"}, RuntimeHandler: "runc",
	}}
	f.Add(encodeStatus(f, sandbox), encodeStatus(f, sandbox))
	for _, pair := range statusPairs() {
		f.Add(encodeStatus(f, pair[0]), encodeStatus(f, pair[1]))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		last, _ := decodeContainerStatus(before, labelled{})
		got, err := decodeContainerStatus(after, labelled{last.GetLabels(), last.GetAnnotations()})
		var want runtimeapi.ContainerStatusResponse
		wantErr := proto.Unmarshal(after, &want)
		if (err != nil) != (wantErr != nil) || err == nil && !proto.Equal(got, want.GetStatus()) {
			t.Errorf("container: got %v, %v; want %v, %v", got, err, want.GetStatus(), wantErr)
		}
		lastBox, _ := decodeSandboxStatus(before, labelled{})
		gotBox, err := decodeSandboxStatus(after, labelled{lastBox.GetLabels(), lastBox.GetAnnotations()})
		var wantBox runtimeapi.PodSandboxStatusResponse
		wantErr = proto.Unmarshal(after, &wantBox)
		if (err != nil) != (wantErr != nil) || err == nil && !proto.Equal(gotBox, wantBox.GetStatus()) {
			t.Errorf("sandbox: got %v, %v; want %v, %v", gotBox, err, wantBox.GetStatus(), wantErr)
		}
	})
}

func encodeStatus(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// statusPairs are answers to ContainerStatus about one id, one after the other.
func statusPairs() map[string][2]proto.Message {
	containerOf := func(labels, annotations map[string]string) *runtimeapi.ContainerStatusResponse {
		return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
			Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, ExitCode: 3, Reason: "Error",
			Labels: labels, Annotations: annotations, Mounts: []*runtimeapi.Mount{{HostPath: "/a"}}, LogPath: "/log",
		}}
	}
	labels, annotations := map[string]string{"a": "1", "b": "2"}, map[string]string{"hash": "x"}
	first := containerOf(labels, annotations)
	verbose := proto.CloneOf(first)
	verbose.Info = map[string]string{"info": "{}"}
	return map[string][2]proto.Message{
		"equal":           {first, first},
		"a value changed": {first, containerOf(map[string]string{"a": "1", "b": "3"}, annotations)},
		"one more":        {first, containerOf(map[string]string{"a": "1", "b": "2", "c": "3"}, annotations)},
		"one fewer":       {first, containerOf(map[string]string{"a": "1"}, annotations)},
		"none":            {first, containerOf(nil, nil)},
		"none before":     {containerOf(nil, nil), first},
		"more than that":  {first, verbose},
	}
}

// A key that comes twice is not two keys: of {a, a} and {a, b} the numbers of
// entries are equal.
func TestRepeatedLabelIsNotAnother(t *testing.T) {
	entry := func(key string) []byte {
		return encodeStatus(t, &runtimeapi.ContainerStatus{Labels: map[string]string{key: "1"}})
	}
	twice := append(entry("a"), entry("a")...)
	if _, ok := containerStatusFields.strip(twice, labelled{labels: map[string]string{"a": "1", "b": "1"}}); ok {
		t.Error("a label that is repeated passes for two")
	}
}

// What did not change is not decoded anew: the map of the last status is used.
func TestLabelsOfTheLastStatusAreUsedAgain(t *testing.T) {
	for name, pair := range statusPairs() {
		last, err := decodeContainerStatus(encodeStatus(t, pair[0]), labelled{})
		if err != nil {
			t.Fatal(err)
		}
		next, err := decodeContainerStatus(encodeStatus(t, pair[1]), labelled{last.GetLabels(), last.GetAnnotations()})
		if err != nil {
			t.Fatal(err)
		}
		same := fmt.Sprintf("%p", next.GetLabels()) == fmt.Sprintf("%p", last.GetLabels()) && next.GetLabels() != nil
		if want := name == "equal"; same != want {
			t.Errorf("%s: the same map: %v, want %v", name, same, want)
		}
	}
}

func BenchmarkStatus(b *testing.B) {
	labels := make(map[string]string)
	for i := range 8 {
		labels[fmt.Sprintf("app.kubernetes.io/label-%d", i)] = "some value"
	}
	raw := encodeStatus(b, &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Reason: "Error", Labels: labels, Annotations: labels,
	}})
	for name, last := range map[string]labelled{"again": {labels, labels}, "first": {}} {
		b.Run("listed="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeContainerStatus(raw, last); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
