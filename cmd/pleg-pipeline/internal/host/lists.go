package host

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// listLimit is the largest list that the kubelet and the runtimes accept. fullList is the share
	// of it at which a list counts as too large.
	listLimit = 16 << 20
	fullList  = 0.6
	// listTimeout bounds both lists.
	listTimeout = 20 * time.Second
	// named is the number of pods or items that a trouble names.
	named = 3
)

// List is one of the two lists of all pods. Its JSON form is one of the program's outputs.
type List struct {
	Method string `json:"method"`
	Bytes  int    `json:"bytes"`
	// LimitBytes is the size that kubelets and runtimes accept.
	LimitBytes int `json:"limitBytes"`
	// Largest are the pods with the most bytes in this list.
	Largest []PodSize `json:"largest,omitempty"`
}

// PodSize is the size of one pod in a list, in bytes.
type PodSize struct {
	Pod         string `json:"pod"`
	Bytes       int    `json:"bytes"`
	Annotations int    `json:"annotationBytes"`
}

// listAnswer is an answer as the runtime sent it, and decoded. Text in it that is not UTF-8 is
// replaced.
type listAnswer struct {
	raw      []byte
	message  proto.Message
	replaced bool
}

// lists makes both list calls at once, as a relist does, and returns their sizes and malformed
// items.
func lists(ctx context.Context, runtime grpc.ClientConnInterface) ([]List, []pleg.Trouble, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	sandboxes, containers := &List{Method: "ListPodSandbox", LimitBytes: listLimit}, &List{Method: "ListContainers", LimitBytes: listLimit}
	var answers [2]*listAnswer
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() {
		answers[0], errs[0] = invoke(ctx, runtime, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, &runtimeapi.ListPodSandboxRequest{}, &runtimeapi.ListPodSandboxResponse{})
	})
	both.Go(func() {
		answers[1], errs[1] = invoke(ctx, runtime, runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{}, &runtimeapi.ListContainersResponse{})
	})
	both.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return nil, nil, err
	}
	items := slices.Concat(answers[0].items(), answers[1].items())
	names := namesOf(items)
	sandboxes.measure(answers[0], names)
	containers.measure(answers[1], names)
	return []List{*sandboxes, *containers}, malformed(items, names), nil
}

func invoke(ctx context.Context, runtime grpc.ClientConnInterface, method string, request, answer proto.Message) (*listAnswer, error) {
	a := &listAnswer{message: answer}
	return a, runtime.Invoke(ctx, method, request, a, grpc.StaticMethod(), grpc.ForceCodecV2(listCodec{encoding.GetCodecV2(grpcproto.Name)}))
}

// listCodec decodes a [listAnswer].
type listCodec struct{ encoding.CodecV2 }

// Name is empty so that the calls use the content type of all others.
func (listCodec) Name() string { return "" }

// Unmarshal keeps the bytes.
func (listCodec) Unmarshal(data mem.BufferSlice, v any) error {
	a := v.(*listAnswer)
	a.raw = data.Materialize()
	var err error
	a.replaced, err = lenient.Unmarshal(a.raw, a.message)
	return err
}

// item is a listed sandbox or container.
type item struct {
	sandbox             bool // otherwise a container
	id, of, name, pod   string
	hasMetadata, isUTF8 bool
}

// items returns the items of the answer. The kubelet's labels name the pod of a container.
func (a *listAnswer) items() (all []item) {
	switch m := a.message.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		for _, s := range m.GetItems() {
			meta := s.GetMetadata()
			pod := podName(cmp.Or(meta.GetNamespace(), s.GetLabels()[labelNamespace]), cmp.Or(meta.GetName(), s.GetLabels()[labelPod]), cmp.Or(meta.GetUid(), s.GetLabels()[labelUID]))
			all = append(all, item{true, s.GetId(), "", meta.GetName(), pod, meta != nil, true})
		}
	case *runtimeapi.ListContainersResponse:
		for _, c := range m.GetContainers() {
			labels := c.GetLabels()
			pod := podName(labels[labelNamespace], labels[labelPod], labels[labelUID])
			all = append(all, item{false, c.GetId(), c.GetPodSandboxId(), c.GetMetadata().GetName(), pod, c.GetMetadata() != nil, true})
		}
	}
	if a.replaced {
		for n, raw := range split(a.raw) {
			replaced, _ := lenient.Unmarshal(raw, a.newItem())
			all[n].isUTF8 = !replaced
		}
	}
	return all
}

// The labels of the kubelet.
const labelUID, labelPod, labelNamespace = "io.kubernetes.pod.uid", "io.kubernetes.pod.name", "io.kubernetes.pod.namespace"

func podName(namespace, name, uid string) string {
	if name == "" {
		return uid
	}
	return namespace + "/" + name
}

func (a *listAnswer) newItem() proto.Message {
	if _, ok := a.message.(*runtimeapi.ListPodSandboxResponse); ok {
		return &runtimeapi.PodSandbox{}
	}
	return &runtimeapi.Container{}
}

// split returns the encoded items of a valid answer: they are field 1, the only field.
func split(raw []byte) (items [][]byte) {
	for len(raw) > 0 {
		number, kind, size := protowire.ConsumeField(raw)
		if number == 1 && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(raw)
			content, _ := protowire.ConsumeBytes(raw[tag:size])
			items = append(items, content)
		}
		raw = raw[size:]
	}
	return items
}

// namesOf returns the name of the pod of each container and sandbox.
func namesOf(items []item) map[string]string {
	names := make(map[string]string)
	for _, it := range items { // the sandboxes first
		if pod := cmp.Or(names[it.of], it.pod); it.id != "" && pod != "" {
			names[it.id] = pod
		}
	}
	return names
}

// measure finds the size of the list, and the pods that are largest in it.
func (l *List) measure(answer *listAnswer, names map[string]string) {
	pods := make(map[string]PodSize)
	add := func(id string, size int, annotations map[string]string) {
		p := pods[names[id]]
		p.Pod, p.Bytes = names[id], p.Bytes+size
		for k, v := range annotations {
			p.Annotations += len(k) + len(v)
		}
		pods[p.Pod] = p
	}
	l.Bytes = len(answer.raw)
	switch m := answer.message.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		for _, s := range m.GetItems() {
			add(s.GetId(), proto.Size(s), s.GetAnnotations())
		}
	case *runtimeapi.ListContainersResponse:
		for _, c := range m.GetContainers() {
			add(c.GetId(), proto.Size(c), c.GetAnnotations())
		}
	}
	delete(pods, "") // items of no pod
	l.Largest = slices.SortedFunc(maps.Values(pods), func(a, b PodSize) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Pod, b.Pod)) })
	l.Largest = l.Largest[:min(named, len(l.Largest))]
}

// words are the names that people use for the items of a list.
var words = map[string]string{"ListPodSandbox": "sandboxes", "ListContainers": "containers"}

// trouble describes the problem with the size of a list that the runtime still sends. The client
// reports a list that the runtime no longer sends.
func (l *List) trouble() (pleg.Trouble, bool) {
	if float64(l.Bytes) < fullList*float64(l.LimitBytes) {
		return pleg.Trouble{}, false
	}
	t := pleg.Trouble{Cause: string(verdict.ListTooLarge), Subject: "the list of " + words[l.Method], What: "is almost too large"}
	t.Detail = fmt.Sprintf(": %s, %.0f %% of the %s that a kubelet accepts", Size(l.Bytes), 100*float64(l.Bytes)/float64(l.LimitBytes), Size(l.LimitBytes))
	names := make([]string, len(l.Largest))
	for n, p := range l.Largest {
		names[n] = fmt.Sprintf("%s %s (annotations %s)", p.Pod, Size(p.Bytes), Size(p.Annotations))
	}
	t.Detail += "; the largest pods in it: " + strings.Join(names, ", ")
	return t, true
}

// Size returns a number of bytes for people.
func Size(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	default:
		return fmt.Sprintf("%d B", bytes)
	}
}

// malformed says why no call can ask for a listed item, or a kubelet cannot read the list; "" if it is well-formed.
func (it *item) malformed() string {
	switch {
	case it.id == "":
		return "has no id"
	case !it.isUTF8:
		return "has text that is not UTF-8, so that a kubelet cannot read the list"
	case !it.hasMetadata:
		return "has no metadata"
	}
	return ""
}

// malformed describes the malformed items of the lists.
func malformed(items []item, names map[string]string) (all []pleg.Trouble) {
	for _, method := range []string{"ListPodSandbox", "ListContainers"} {
		var bad []string
		for _, it := range items {
			reason := it.malformed()
			if reason == "" || it.sandbox != (method == "ListPodSandbox") {
				continue
			}
			kind := strings.TrimSuffix(words[method], "s")
			if it.sandbox {
				kind = "sandbox"
			}
			text := fmt.Sprintf("%s %s (%s)", kind, cmp.Or(it.name, "without a name"), view.ShortID(cmp.Or(it.id, "no id")))
			if pod := cmp.Or(names[it.id], names[it.of]); pod != "" {
				text += " of " + pod
			}
			bad = append(bad, text+" "+reason)
		}
		if len(bad) == 0 {
			continue
		}
		t := pleg.Trouble{Cause: string(verdict.RuntimeFails), Problem: true, Subject: "the list of " + words[method], What: "has malformed items", Detail: ": " + bad[0]}
		if more := len(bad) - 1; more > 0 {
			t.Detail += fmt.Sprintf("; and %d more", more)
		}
		all = append(all, t)
	}
	return all
}
