package cri

import (
	"google.golang.org/grpc/mem"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Skipped is a listed sandbox or container that is malformed or belongs to no pod. It is completed
// from elsewhere or left out.
type Skipped struct {
	Sandbox       bool // otherwise a container
	ID, SandboxID pleg.ContainerID
	Name          string
	// Reason is no_id, no_metadata, no_pod_uid, duplicate_id, no_pod, shared_pod_uid or not_utf8,
	// as in the metric pleg_malformed_items_total.
	Reason string
}

// Join returns the pods of lists that the caller made through [Client.Conn], as [Client.ListPods]
// does from its own, and what it skips. It is for a program that examines a runtime and keeps the
// bytes, as "pleg-pipeline doctor" does. sandboxes and containers are the encoded answers: one
// answer for each list, or its portions. The error says that an answer cannot be decoded.
func Join(sandboxes, containers [][]byte) (pods []*pleg.Pod, skipped []Skipped, err error) {
	tables := [2]*table{newSandboxTable(), newContainerTable()}
	for n, answers := range [][][]byte{sandboxes, containers} {
		t := tables[n]
		t.startList()
		t.portioned = len(answers) > 1
		for _, raw := range answers {
			if err := t.read(mem.BufferSlice{mem.SliceBuffer(raw)}); err != nil {
				return nil, nil, err
			}
		}
		t.finishList()
	}
	j := newJoiner(func(pleg.ContainerID) *item { return nil })
	pods = j.join(tables[0].items, tables[1].items)
	for _, s := range allSkipped(tables[0], tables[1], j) {
		it := s.item
		skipped = append(skipped, Skipped{Sandbox: it.sandbox, ID: it.ID, SandboxID: it.SandboxID, Name: it.Name, Reason: s.reason.String()})
	}
	return pods, skipped, nil
}
