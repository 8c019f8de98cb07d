package recording_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const secret = "tell-nobody"

// addSecretPods adds pods with a text to search for in each field.
func addSecretPods(t *testing.T, runtime *simruntime.Runtime) {
	t.Helper()
	for i := range 3 {
		name := fmt.Sprintf("%s-%d", secret, i)
		runtime.AddPod(simruntime.PodSpec{
			UID: pleg.PodUID(name + "-uid"), Name: name, Namespace: secret,
			Labels:      map[string]string{secret + "-key": secret, "app": secret, "container.kubernetes.io/" + secret: "x"},
			Annotations: map[string]string{secret + "-key": secret, "kubernetes.io/config.source": secret},
			Containers:  []pleg.ContainerStatus{{Name: secret, Image: "registry/" + secret + ":1"}, {Name: "other"}},
		})
	}
}

// TestRedactedReplayEqualsExceptTexts also checks that the file contains none of the texts.
func TestRedactedReplayEqualsExceptTexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var forbidden []string
		s := scenario{
			pods: 10, simulated: simruntime.Options{Seed: 5, Faults: simruntime.BusyNode(), DualStack: true},
			play: func(t *testing.T, runtime *simruntime.Runtime) {
				addSecretPods(t, runtime)
				runtime.Inject(simruntime.Fault{RPC: "ContainerStatus", Code: 14, Times: 1, Message: secret})
				churn(8, 60)(t, runtime)
				time.Sleep(10 * time.Second)
				forbidden = append(texts(runtime), secret)
			},
		}
		_, plain := s.record(t)
		missing := slices.DeleteFunc(slices.Clone(forbidden), func(text string) bool { return strings.Contains(string(plain), text) })
		if len(missing) > 0 || len(forbidden) < 40 {
			t.Fatalf("some texts are missing even without redaction, or there are few: %q", forbidden)
		}
		s.redact = true
		want, data := s.record(t)
		for _, text := range forbidden {
			if strings.Contains(string(data), text) {
				t.Errorf("the recording has %q", text)
			}
		}
		got := replayed(t, data, pipeline.Options{}, 0)
		if got.total != want.total || len(got.events) != len(want.events) {
			t.Errorf("%d events of %d pods, want %d of %d", got.total, len(got.events), want.total, len(want.events))
		}
		want.withoutTexts().requireEqual(t, got.withoutTexts())
	})
}

// texts returns the names, values and addresses of all pods, except those that are part of the
// format.
func texts(runtime *simruntime.Runtime) []string {
	found := make(map[string]bool)
	for _, p := range runtime.Pods() {
		found[p.Name], found[`"`+p.Namespace+`"`] = true, true
		for _, s := range p.Sandboxes {
			for _, ip := range s.IPs {
				found[ip] = true
			}
		}
		for _, c := range p.Containers {
			found[c.Image] = true
			if c.Name != "app" { // a well-known key
				found[`"`+c.Name+`"`] = true
			}
		}
	}
	found["2026-01-02T03:04:05Z"] = true
	found["/dev/termination-log"] = true
	var all []string
	for text := range found {
		all = append(all, text)
	}
	return all
}

// withoutTexts returns the parts that a redacted recording keeps: ids, types, exit codes, reasons,
// states and times.
func (s observed) withoutTexts() observed {
	kept := observed{events: make(map[pleg.PodUID][]string), states: make(map[pleg.PodUID]string)}
	for uid, events := range s.events {
		if strings.HasPrefix(string(uid), secret) || !strings.Contains(string(uid), "-") {
			continue // the UID is not random and was replaced
		}
		for _, ev := range events {
			f := strings.Fields(ev)
			kept.events[uid] = append(kept.events[uid], strings.Join(append(f[:2], f[3:]...), " "))
		}
		kept.states[uid] = fmt.Sprint(numbers.FindAllString(s.states[uid], -1))
	}
	return kept
}

var numbers = regexp.MustCompile(`"(ID|State|CreatedAt|StartedAt|FinishedAt|ExitCode|Reason|Ready|Attempt)":("[^"]*"|[0-9a-z]+)`)
