package cri

import (
	"errors"
	"hash/maphash"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The fields of a ContainerEventResponse.
const (
	eventContainerField protowire.Number = 1
	eventKindField      protowire.Number = 2
	eventTimeField      protowire.Number = 3
	eventSandboxField   protowire.Number = 4
	eventStatusesField  protowire.Number = 5
)

var (
	eventSandboxFields = fields{id: 1, labels: 7, annotations: 8}
	// Not used are the mounts, the log's path, resources, user and stop signal.
	eventContainerFields = fields{id: 1, labels: 12, annotations: 13, image: 8, unused: 1<<14 | 1<<15 | 1<<16 | 1<<18 | 1<<19}
)

// event is a ContainerEventResponse, and the memory of those before it on the
// same stream: each carries all statuses of its pod, of which one has changed. A
// status that is the last one of its id is not decoded again, and one with the
// same labels and annotations, which are most of it, without those. One goroutine
// uses it.
type event struct {
	kind       runtimeapi.ContainerEventType
	createdAt  int64
	container  pleg.ContainerID
	sandbox    *eventSandbox // nil if the event has none
	containers []*eventContainer

	seed  maphash.Seed
	known map[pleg.ContainerID]*knownSandbox
	bytes int // of all events that made what is known
	// raws and parts are those of the event being read.
	raws, parts [][]byte
	rest        []byte
}

// What is known is forgotten, all of it, beyond so many sandboxes, or so many
// bytes of the events that they came with. Of one sandbox so many containers are
// known.
const (
	maxKnownSandboxes  = 1024
	maxKnownBytes      = 16 << 20
	maxKnownContainers = 64
)

// knownSandbox is what the last event about a sandbox carried.
type knownSandbox struct {
	print      fingerprint
	sandbox    *eventSandbox
	containers []knownContainer
	spare      []knownContainer // to be overwritten
	bytes      int              // of that event
}

type knownContainer struct {
	print     fingerprint
	container *eventContainer
}

func newEvent() *event {
	return &event{seed: maphash.MakeSeed(), known: make(map[pleg.ContainerID]*knownSandbox)}
}

// eventCodec decodes an answer into an *event, or into a message of an interceptor
// of Options.DialOptions. It encodes requests as usual.
type eventCodec struct{ encoding.CodecV2 }

func newEventCodec() eventCodec { return eventCodec{encoding.GetCodecV2(proto.Name)} }

// Name is empty so that the calls have the content type of all others.
func (eventCodec) Name() string { return "" }

// Unmarshal reads data, which is not kept.
func (c eventCodec) Unmarshal(data mem.BufferSlice, v any) error {
	e, ok := v.(*event)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return e.read(buffer.ReadOnlyData())
}

// read takes in an event. It accepts what proto.Unmarshal does, and more: what is
// wrong with a part that nobody uses is not found. What it leaves in the fields
// is valid until the next one; what these point to is never changed.
func (e *event) read(raw []byte) error {
	container, sandboxes, err := e.split(raw)
	if err != nil {
		return err
	}
	known := &knownSandbox{}
	e.sandbox, e.containers = nil, e.containers[:0]
	if len(sandboxes) > 0 {
		if known, err = e.readSandbox(sandboxes); err != nil {
			return err
		}
		e.sandbox = known.sandbox
	}
	if err := e.readContainers(known); err != nil {
		return err
	}
	e.container = e.same(container)
	e.remember(known, len(raw))
	return nil
}

// split reads all but the statuses. It leaves those of the containers in raws;
// that of the sandbox may come in parts.
func (e *event) split(raw []byte) (container []byte, sandboxes [][]byte, err error) {
	sandboxes = e.parts[:0]
	defer func() { e.parts = sandboxes }()
	e.kind, e.createdAt, e.raws = 0, 0, e.raws[:0]
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 || num > protowire.MaxValidNumber {
			return nil, nil, errors.New("malformed field")
		}
		size := protowire.ConsumeFieldValue(num, typ, raw[n:])
		if size < 0 {
			return nil, nil, protowire.ParseError(size)
		}
		value := raw[n : n+size]
		raw = raw[n+size:]
		switch {
		case num == eventKindField && typ == protowire.VarintType:
			kind, _ := protowire.ConsumeVarint(value)
			e.kind = runtimeapi.ContainerEventType(int32(kind))
		case num == eventTimeField && typ == protowire.VarintType:
			at, _ := protowire.ConsumeVarint(value)
			e.createdAt = int64(at)
		case num == eventContainerField && typ == protowire.BytesType:
			container, _ = protowire.ConsumeBytes(value)
			if !utf8.Valid(container) {
				return nil, nil, errNotUTF8
			}
		case num == eventSandboxField && typ == protowire.BytesType:
			part, _ := protowire.ConsumeBytes(value)
			sandboxes = append(sandboxes, part)
		case num == eventStatusesField && typ == protowire.BytesType:
			status, _ := protowire.ConsumeBytes(value)
			e.raws = append(e.raws, status)
		}
	}
	return container, sandboxes, nil
}

// readSandbox returns what is known of the sandbox with this status, which is in
// it.
func (e *event) readSandbox(parts [][]byte) (*knownSandbox, error) {
	raw := parts[0]
	if len(parts) > 1 {
		// Together they are decoded as one, if none ends in the midst of a field.
		if slices.ContainsFunc(parts, cutOff) {
			return nil, errors.New("malformed status of a sandbox")
		}
		raw = slices.Concat(parts...)
	}
	id, seen := eventSandboxFields.scan(e.seed, raw)
	known := e.known[pleg.ContainerID(id)]
	if known == nil {
		known = &knownSandbox{}
	}
	if seen.valid && known.print == seen {
		return known, nil
	}
	s := &runtimeapi.PodSandboxStatus{}
	maps, err := e.decode(eventSandboxFields, raw, &seen, known.print, known.sandbox.maps, s)
	if err != nil {
		return nil, err
	}
	s.Labels, s.Annotations = maps.labels, maps.annotations
	known.print, known.sandbox = seen, newEventSandbox(s)
	return known, nil
}

// cutOff reports whether a message is not a row of whole fields.
func cutOff(raw []byte) bool {
	for len(raw) > 0 {
		_, _, n := protowire.ConsumeField(raw)
		if n < 0 {
			return true
		}
		raw = raw[n:]
	}
	return false
}

// readContainers reads raws with what is known of the sandbox, and takes note of
// it there.
func (e *event) readContainers(known *knownSandbox) error {
	next := known.spare[:0]
	for i, raw := range e.raws {
		id, seen := eventContainerFields.scan(e.seed, raw)
		now, err := e.next(known.container(i, id), known.sandbox, raw, seen)
		if err != nil {
			return err
		}
		e.containers = append(e.containers, now.container)
		if len(next) < maxKnownContainers {
			next = append(next, now)
		}
	}
	clear(known.containers)
	known.containers, known.spare = next, known.containers
	return nil
}

// container returns what is known of a container, which is most likely where it
// was in the last event.
func (k *knownSandbox) container(i int, id []byte) knownContainer {
	if i < len(k.containers) && k.containers[i].container.is(id) {
		return k.containers[i]
	}
	for _, c := range k.containers {
		if c.container.is(id) {
			return c
		}
	}
	return knownContainer{}
}

// decode decodes a status but for its labels and annotations, which it returns:
// the last ones, if before, which is their print, says the same. seen is not valid
// any more if a key is there twice.
func (e *event) decode(f fields, raw []byte, seen *fingerprint, before fingerprint, last func() labelled, status protobuf.Message) (labelled, error) {
	if !seen.valid {
		return labelled{}, errors.New("malformed status")
	}
	e.rest = f.appendRest(e.rest[:0], raw)
	if err := protobuf.Unmarshal(e.rest, status); err != nil {
		return labelled{}, err
	}
	if before.sameMaps(*seen) {
		return last(), nil
	}
	maps, err := f.decodeMaps(raw)
	seen.valid = seen.counts(maps.labels, maps.annotations)
	return maps, err
}

// next returns what is known after another status of a container.
func (e *event) next(k knownContainer, sandbox *eventSandbox, raw []byte, seen fingerprint) (knownContainer, error) {
	if seen.valid && k.print == seen {
		return k, nil
	}
	c := &runtimeapi.ContainerStatus{}
	maps, err := e.decode(eventContainerFields, raw, &seen, k.print, k.container.maps, c)
	if err != nil {
		return k, err
	}
	c.Labels, c.Annotations = maps.labels, maps.annotations
	return knownContainer{seen, newEventContainer(c, sandbox)}, nil
}

// same returns an id as it is known already, or a copy.
func (e *event) same(id []byte) pleg.ContainerID {
	if e.sandbox != nil && string(e.sandbox.status.ID) == string(id) {
		return e.sandbox.status.ID
	}
	for _, c := range e.containers {
		if c.is(id) {
			return c.status.ID
		}
	}
	return pleg.ContainerID(id)
}

// remember keeps what is known of the sandbox of an event of so many bytes, until
// it is removed.
func (e *event) remember(known *knownSandbox, bytes int) {
	if e.sandbox == nil || e.sandbox.status.ID == "" {
		return
	}
	id := e.sandbox.status.ID
	e.bytes -= known.bytes
	if e.kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT && e.container == id {
		delete(e.known, id)
		return
	}
	known.bytes = bytes
	e.bytes += bytes
	e.known[id] = known
	if len(e.known) > maxKnownSandboxes || e.bytes > maxKnownBytes {
		clear(e.known)
		e.bytes = 0
	}
}
