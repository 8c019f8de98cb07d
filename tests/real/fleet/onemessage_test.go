package fleet_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Watches skip messages that nobody can read, both watches that run and watches that come later.
func TestUnreadableMessageStopsNobody(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	var unreadable sync.Map
	o := fleet.WatchOptions{Replay: true, Unreadable: func(err error) { unreadable.Store(err.Error(), nil) }}
	first := watch(t, f.server.URL, o, f.a, f.b)
	first.converges()
	conn := connect(t, f.server.URL)
	for subject, body := range map[string]string{
		"pleg.v2.test_example.=ZZ.uid": "{not JSON", "pleg.v2.test_example.node-c": "{not JSON", "pleg.v2.test_example.node-a.no-json": "{not JSON",
		"pleg.v2.test_example.node-a.nothing": "{}", "pleg.v2.test_example.node-a.no-pod": `{"type": "io.github.pleg-pipeline.pod.state.v1", "data": {"epoch": "e"}}`,
	} {
		if _, err := conn.Request(subject, []byte(body), patience); err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
	}
	// A message whose headers cannot be read either.
	raw, err := net.Dial("tcp", strings.TrimPrefix(f.server.URL, "nats://"))
	kit.Must(t, err)
	defer func() { _ = raw.Close() }()
	headers := "NATS/1.0\r\nthis is no header\r\n\r\n"
	_, err = fmt.Fprintf(raw, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB pleg.v2.test_example.node-a.headers %d %d\r\n%s{}\r\nPING\r\n", len(headers), len(headers)+2, headers)
	kit.Must(t, err)
	for text := []byte{}; !strings.Contains(string(text), "PONG"); {
		part := make([]byte, 1024)
		n, err := raw.Read(part)
		kit.Must(t, err)
		text = append(text, part[:n]...)
	}
	f.steps(20)
	first.converges()
	n := 0
	unreadable.Range(func(any, any) bool { n++; return true })
	if n != 6 {
		t.Errorf("a watch that runs passes over %d messages, want 6", n)
	}
	watch(t, f.server.URL, o, f.a, f.b).converges()
	before := f.count()
	f.a.restart()
	f.eventually(func() error { return f.hasGap(before, pleg.OtherEpoch) })
	f.converges()
}

// A pod that is too large for a message is published in part, its neighbors whole, and the
// publisher says so.
func TestTooLargePodStopsNobody(t *testing.T) {
	t.Parallel()
	labels := make(map[string]string)
	for i := range 15_000 {
		labels[fmt.Sprintf("example.com/label-%05d", i)] = strings.Repeat("v", 60)
	}
	huge := strings.Repeat("x", 2<<20)
	for name, spoil := range map[string]func(*pleg.Event, *pleg.PodStatus){
		"labels": func(_ *pleg.Event, s *pleg.PodStatus) {
			for _, sandbox := range s.Sandboxes {
				sandbox.Labels = labels
			}
		},
		"status": func(_ *pleg.Event, s *pleg.PodStatus) {
			for _, c := range s.Containers {
				c.Message = huge
			}
		},
		"container id": func(ev *pleg.Event, _ *pleg.PodStatus) { ev.ContainerID = pleg.ContainerID(huge) + ev.ContainerID },
		"pod UID":      func(ev *pleg.Event, _ *pleg.PodStatus) { ev.PodUID = pleg.PodUID(huge) + ev.PodUID },
		"namespace":    func(ev *pleg.Event, _ *pleg.PodStatus) { ev.PodNamespace += huge[:5_000] },
		"image":        func(ev *pleg.Event, _ *pleg.PodStatus) { ev.Image = huge },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "")
			node := newNode(t, "node-a", agentOptions{spoil: func(ev *pleg.Event, status *pleg.PodStatus) {
				if ev.PodNamespace == "shop" || status.Namespace == "shop" {
					spoil(ev, status)
				}
			}})
			log := new(kit.Log)
			p, _ := publish(t, fleet.PublisherOptions{
				Conn: connect(t, s.URL), Source: node, Node: "node-a", Logger: log.Logger(),
			})
			for range 40 {
				node.Step()
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			missing := map[string]bool{"shop": true, "jobs": true}
			for ev, err := range fleet.Watch(ctx, jetStream(t, connect(t, s.URL)), fleet.WatchOptions{Cluster: cluster, Replay: true}) {
				kit.Must(t, err)
				delete(missing, ev.PodNamespace[:min(4, len(ev.PodNamespace))])
				if len(missing) == 0 {
					break
				}
				node.Step()
			}
			if len(missing) > 0 {
				t.Errorf("no events of the namespaces %v: shop is too large, the other is not", missing)
			}
			if s := p.Status(); s.Cut < 2 || s.Err != nil {
				t.Errorf("the status is %+v, want that it publishes in part", s)
			}
			log.RequireLines(t, 1, "published in part")
		})
	}
}
