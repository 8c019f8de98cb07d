package kubelet_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The label selectors of a subscriber are those of Kubernetes: both accept the same texts, and each
// text selects the same pods.
func TestSelectors(t *testing.T) {
	pods := []labels.Set{{}, {"a": ""}, {"a": "b"}, {"a": "7", "in": "b"}, {"a": "x.y", "k8s.io/b": "7"}, {"in": "in", "b": "notin"}}
	parts := []string{
		"a", "b", "in", "notin", "7", "-1", "x.y", "k8s.io/b", "k8s.io/", "K/b", "a-", strings.Repeat("c", 63), strings.Repeat("c", 64), "ä",
		" ", " ", " ", "\t", "\n", "=", "==", "!=", "!", "(", ")", ",", ",", ">", "<", " in (", " notin (", ")",
	}
	random, taken := rand.New(rand.NewPCG(1, 2)), 0
	for range 300_000 {
		var text strings.Builder
		text.WriteString(parts[random.IntN(3)])
		for range random.IntN(9) {
			text.WriteString(parts[random.IntN(len(parts))])
		}
		want, wrong := labels.Parse(text.String())
		got, err := filter.New(pleg.Filter{Selector: text.String()})
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%q: error %v, Kubernetes says %v", text.String(), err, wrong)
		}
		if err != nil {
			continue
		}
		taken++
		for _, pod := range pods {
			if got.WantsLabels(pod) != want.Matches(pod) {
				t.Fatalf("%q wants %v: %v, Kubernetes says %v", text.String(), pod, got.WantsLabels(pod), want.Matches(pod))
			}
		}
	}
	if taken < 10_000 {
		t.Errorf("%d of the texts are selectors", taken)
	}
}
