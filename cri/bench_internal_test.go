package cri

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkListPods decodes and joins the lists of an idle node. decoder=generated uses
// the generated code, and joins without the list before.
func BenchmarkListPods(b *testing.B) {
	const pods = 1000
	answers := idleAnswers(b, pods)
	l := testLists(b)
	if _, _, err := l.readPieces(b, answers[0][0], answers[0][1]); err != nil {
		b.Fatal(err)
	}
	for name, read := range map[string]func(sandboxes, containers mem.BufferSlice) ([]*pleg.Pod, int, error){
		"table": func(sandboxes, containers mem.BufferSlice) ([]*pleg.Pod, int, error) {
			return l.readPieces(b, sandboxes, containers)
		},
		"generated": func(sandboxes, containers mem.BufferSlice) ([]*pleg.Pod, int, error) {
			return reference(sandboxes.Materialize(), containers.Materialize())
		},
	} {
		b.Run(fmt.Sprintf("pods=%d/decoder=%s", pods, name), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if got, _, err := read(answers[n%4][0], answers[n%4][1]); err != nil || len(got) != pods {
					b.Fatalf("%d pods, %v", len(got), err)
				}
			}
		})
	}
}
