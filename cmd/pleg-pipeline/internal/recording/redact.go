package recording

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// redactor replaces each text by a word, equal texts by the same word. The words
// depend on a random key that is not kept. A nil redactor replaces nothing.
type redactor struct{ key []byte }

func newRedactor() *redactor {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return &redactor{key}
}

func (r *redactor) sum(text string) []byte {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// wordBytes is the length of a word. With 48 bits two of a thousand names get the
// same word with a probability of 2 in a billion.
const wordBytes = 6

// word replaces any text. It is a valid name in Kubernetes.
func (r *redactor) word(text string) string {
	if text == "" || r == nil {
		return text
	}
	return "r" + hex.EncodeToString(r.sum(text)[:wordBytes])
}

// randomID matches the random UID of a pod and the id of a container. The UID of a
// static pod is 32 digits, the hash of its manifest.
var randomID = regexp.MustCompile(`^([0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$`)

// id replaces the id of a pod, a sandbox or a container.
func (r *redactor) id(id string) string {
	if id == "" || randomID.MatchString(id) {
		return id
	}
	return hex.EncodeToString(r.sum(id)[:16])
}

// wellKnown matches the keys of labels and annotations that stay. Other keys may contain names.
var wellKnown = regexp.MustCompile(`^(io\.kubernetes\.(pod|container)\.[A-Za-z]+|kubernetes\.io/config\.(hash|mirror|seen|source)|` +
	`app\.kubernetes\.io/(name|instance|version|component|part-of|managed-by)|app|k8s-app|component|tier|job-name|controller-uid|` +
	`pod-template-hash|controller-revision-hash|statefulset\.kubernetes\.io/pod-name|batch\.kubernetes\.io/(job-name|controller-uid))$`)

// labelPodUID is the label whose value is an id.
const labelPodUID = "io.kubernetes.pod.uid"

// ownProcess matches the programs of a runtime, and this program.
var ownProcess = regexp.MustCompile(`^(containerd.*|crio|conmon.*|pleg-pipeline)$`)

// oneWord is a reason, such as OOMKilled.
var oneWord = regexp.MustCompile(`^[A-Z][A-Za-z]{0,39}$`)

// text replaces the value of a field.
func (r *redactor) text(field protoreflect.FieldDescriptor, value string) string {
	switch parent := field.Parent().Name(); field.Name() {
	case "id", "uid", "pod_uid", "pod_sandbox_id", "container_id":
		return r.id(value)
	case "state", "cause", "subject", "what":
		if parent == "Process" || parent == "Trouble" {
			return value
		}
	case "name":
		if parent == "Process" && ownProcess.MatchString(value) {
			return value
		}
	case "reason":
		if oneWord.MatchString(value) {
			return value
		}
	case "version", "runtime_name", "runtime_version", "runtime_api_version":
		if parent == "VersionResponse" {
			return value
		}
	}
	return r.word(value)
}

// message redacts m in place, except unknown fields, which its JSON leaves out.
func (r *redactor) message(m protoreflect.Message) {
	if r == nil {
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			m.Set(field, r.entries(field, value.Map(), m.NewField(field)))
		case field.IsList():
			list := value.List()
			for i := range list.Len() {
				list.Set(i, r.value(field, list.Get(i)))
			}
		default:
			m.Set(field, r.value(field, value))
		}
		return true
	})
}

// entries puts the redacted entries of a map into another map.
func (r *redactor) entries(field protoreflect.FieldDescriptor, old protoreflect.Map, into protoreflect.Value) protoreflect.Value {
	old.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if key.String() == labelPodUID {
			value = protoreflect.ValueOfString(r.id(value.String()))
		} else {
			value = r.value(field.MapValue(), value)
		}
		if field.MapKey().Kind() == protoreflect.StringKind && !wellKnown.MatchString(key.String()) {
			key = protoreflect.ValueOfString(r.word(key.String())).MapKey()
		}
		into.Map().Set(key, value)
		return true
	})
	return into
}

func (r *redactor) value(field protoreflect.FieldDescriptor, value protoreflect.Value) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(r.text(field, value.String()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(nil)
	case protoreflect.MessageKind, protoreflect.GroupKind:
		r.message(value.Message())
	}
	return value
}
