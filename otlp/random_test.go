package otlp_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Random faults and random pods: every promise holds once the receiver accepts again.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			o := nodeOptions{
				history:       20 + random.IntN(400),
				exporterFirst: random.IntN(2) == 0,
				exporter:      otlp.ExporterOptions{MaxBatch: 1 + random.IntN(30), MaxBatchBytes: 1000 + random.IntN(20_000)},
			}
			inBubble(t, o, func(n *node) {
				for range 40 {
					n.receiver.set(randomFault(random.Uint64()))
					down := random.IntN(8) == 0
					if down {
						n.receiver.stop()
					}
					n.randomPods(random)
					if down {
						n.receiver.start()
					}
				}
				n.receiver.set(nil)
				n.wait(10 * time.Minute)
				n.requirePromises()
				n.requireBatches(o.exporter.MaxBatch)
				if got := n.metric("pleg_otlp_dropped_records_total"); got != 0 {
					t.Errorf("%v dropped records, want none", got)
				}
			})
		})
	}
}

// randomFault returns a fault that is another one for each request.
func randomFault(seed uint64) func(request) answer {
	random := rand.New(rand.NewPCG(seed, 2))
	answers := []answer{
		accepts, accepts,
		{keep: true, after: 3 * time.Second},
		{keep: true, after: time.Hour},
		{keep: true, cut: true},
		{cut: true},
		{keep: random.IntN(2) == 0, err: refuse(codes.Unavailable, 0).err},
		refuse(codes.ResourceExhausted, 4*time.Second),
	}
	if random.IntN(2) == 0 { // some time without faults
		return nil
	}
	return func(request) answer { return answers[random.IntN(len(answers))] }
}

// randomPods makes a few changes within a few seconds.
func (n *node) randomPods(random *rand.Rand) {
	for range 1 + random.IntN(10) {
		pod := pleg.PodUID(fmt.Sprint("p", random.IntN(5)))
		words := ""
		for c := range random.IntN(20) {
			words += fmt.Sprintf(" %s-c%d-%d=%s", pod, c, random.IntN(3), []string{"running", "exited", "created"}[random.IntN(3)])
		}
		n.runtime.Set(pod, words)
		n.wait(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
}
