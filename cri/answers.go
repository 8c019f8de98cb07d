package cri

import (
	"google.golang.org/grpc/mem"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

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
	return pods, allSkipped(tables[0], tables[1], j), nil
}
