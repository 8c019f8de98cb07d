package fleet_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// burst is a source of many events at once. It costs nothing itself.
type burst struct {
	node.Pipeline

	events []pleg.Event
	begin  chan struct{}
}

// newBurst returns the starts of pods with two containers.
func newBurst(events int) *burst {
	b := &burst{begin: make(chan struct{})}
	at := time.Now()
	for i := range events / 3 {
		uid := pleg.PodUID(fmt.Sprintf("5f1f2a3c-7f4e-4d0a-9d57-%012d", i))
		name := fmt.Sprintf("web-6d4cf56db6-%05d", i)
		status := &pleg.PodStatus{UID: uid, Name: name, Namespace: "shop", IPs: []string{"10.12.34.56"}, ObservedAt: at}
		for j := range 3 {
			id := pleg.ContainerID(fmt.Sprintf("%064x", 3*i+j))
			ev := pleg.Event{
				Epoch: "18ebdd9b0fefd560", Seq: uint64(len(b.events) + 1), Type: pleg.ContainerStarted, PodUID: uid, PodName: name, PodNamespace: "shop",
				ContainerID: id, ContainerName: fmt.Sprintf("app-%d", j), Sandbox: j == 0, ObservedAt: at, Status: status,
			}
			if ev.Sandbox {
				status.Sandboxes = append(status.Sandboxes, &pleg.SandboxStatus{ID: id, Ready: true, CreatedAt: at, IPs: status.IPs, Labels: map[string]string{
					"app": "web", "app.kubernetes.io/name": "web", "app.kubernetes.io/version": "1.2.3", "pod-template-hash": "6d4cf56db6",
				}})
			} else {
				ev.Image, ev.StartedAt = "registry.example.com/shop/web:1.2.3", at
				status.Containers = append(status.Containers, &pleg.ContainerStatus{
					ID: id, Name: ev.ContainerName, State: pleg.StateRunning, CreatedAt: at, StartedAt: at, Image: ev.Image,
					ImageRef: "registry.example.com/shop/web@sha256:" + string(id), LogPath: "/var/log/pods/shop_" + name + "/" + ev.ContainerName + "/0.log",
				})
			}
			b.events = append(b.events, ev)
		}
	}
	return b
}

// Watch implements node.Pipeline.
func (b *burst) Watch(ctx context.Context, _ pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		yield(pleg.Event{Type: pleg.Synced, Epoch: b.events[0].Epoch}, nil)
		<-b.begin
		for _, ev := range b.events {
			if ctx.Err() != nil || !yield(ev, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// BenchmarkBurst publishes a burst of events, and then the same bytes with nats.go alone. It reports the medians
// of its iterations.
func BenchmarkBurst(b *testing.B) {
	const events = 15_000
	s := startServer(b, "")
	conn := connect(b, s.URL)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(256)) // the agent keeps as many in flight
	kit.Must(b, err)
	all := make(map[string][]float64)
	report := func(value float64, unit string) { all[unit] = append(all[unit], value) }
	for b.Loop() {
		_ = js.DeleteStream(b.Context(), fleet.StreamName(cluster))
		agentTook, agentCPU := publishBurst(b, conn, events, fleet.Limits{})
		report(float64(agentCPU.Microseconds())/events, "agent-CPU-µs/event")
		messages := messagesOf(b, js, 2+events)
		took, cpu := publishBare(b, js, messages)
		report(float64((agentCPU-cpu).Microseconds())/events, "µs-more-than-bare")
		report(took.Seconds()/agentTook.Seconds(), "of-rate-of-bare")
	}
	for unit, values := range all {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
}

// BenchmarkThreeServers publishes a burst of events on three servers that keep each message, also far from the agent.
func BenchmarkThreeServers(b *testing.B) {
	const events = 15_000
	for name, roundTrip := range map[string]time.Duration{"near": 0, "20ms": 20 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			servers := startCluster(b)
			path := newRelay(b, servers[0].URL)
			path.delay.Store(int64(roundTrip / 2))
			for b.Loop() {
				took, _ := publishBurst(b, connect(b, path.url), events, fleet.Limits{Replicas: 3})
				b.ReportMetric(events/took.Seconds(), "events/s")
			}
		})
	}
}

// publishBurst publishes events, and returns the time that they took.
func publishBurst(b *testing.B, conn *nats.Conn, events int, limits fleet.Limits) (took, cpu time.Duration) {
	b.Helper()
	source, registry := newBurst(events), prometheus.NewRegistry()
	p, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: conn, Source: source, Cluster: cluster, Node: rand.Text(), Registerer: registry, Limits: limits,
	})
	kit.Must(b, err)
	stop := kit.Run(b, p.Run)
	start := p.Status().LastAck
	until(b, func() error { // the Gap
		if p.Status().LastAck.Equal(start) {
			return errors.New("the agent has not begun")
		}
		return nil
	})
	began, before := time.Now(), use(os.Getpid()).CPU
	close(source.begin)
	until(b, func() error {
		if got := kit.Metric(b, registry, "pleg_fleet_published_events_total"); got < float64(events) {
			return fmt.Errorf("%v of %d events are published", got, events)
		}
		return nil
	})
	cpu = use(os.Getpid()).CPU - before
	took = p.Status().LastAck.Sub(began) // until looks at it only now and then
	_ = stop()
	return took, cpu
}

// BenchmarkLate compares a watch that comes late with an ordered consumer of nats.go alone.
func BenchmarkLate(b *testing.B) {
	const nodes, pods = 20, 1000
	s := startServer(b, "")
	conn := connect(b, s.URL)
	js := jetStream(b, conn)
	for range nodes {
		publishBurst(b, conn, 3*pods, fleet.Limits{})
	}
	var bare, late []float64
	for b.Loop() {
		began, n := time.Now(), 0
		consumer, err := js.OrderedConsumer(b.Context(), fleet.StreamName(cluster), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubjects: []string{"pleg.v2.>"}})
		kit.Must(b, err)
		messages, err := consumer.Messages(jetstream.PullMaxMessages(1000))
		kit.Must(b, err)
		for pending := uint64(1); pending > 0; n++ {
			m, err := messages.Next()
			if err != nil {
				b.Fatal(err)
			}
			of, err := m.Metadata()
			if err != nil {
				b.Fatal(err)
			}
			pending = of.NumPending
		}
		messages.Stop()
		bare = append(bare, time.Since(began).Seconds())
		began = time.Now()
		got := 0
		for ev, err := range fleet.Watch(b.Context(), js, fleet.WatchOptions{Cluster: cluster, Replay: true}) {
			if err != nil {
				b.Fatal(err)
			}
			if ev.Type == pleg.Synced {
				break
			}
			got++
		}
		late = append(late, time.Since(began).Seconds())
		if n != nodes*(pods+1) || got != 3*nodes*pods {
			b.Fatalf("%d messages, %d events", n, got)
		}
	}
	slices.Sort(bare)
	slices.Sort(late)
	b.ReportMetric(late[len(late)/2]/bare[len(bare)/2], "of-time-of-bare")
	b.ReportMetric(1e6*late[len(late)/2]/nodes/pods, "µs/pod")
}

// messagesOf returns the first messages in the stream of the cluster.
func messagesOf(b *testing.B, js jetstream.JetStream, n int) (all []jetstream.Msg) {
	b.Helper()
	consumer, err := js.OrderedConsumer(b.Context(), fleet.StreamName(cluster), jetstream.OrderedConsumerConfig{})
	kit.Must(b, err)
	messages, err := consumer.Messages()
	kit.Must(b, err)
	defer messages.Stop()
	for range n {
		m, err := messages.Next()
		kit.Must(b, err)
		all = append(all, m)
	}
	return all
}

// publishBare publishes the same bytes with nats.go alone.
func publishBare(b *testing.B, js jetstream.JetStream, messages []jetstream.Msg) (took, cpu time.Duration) {
	b.Helper()
	_, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "bare", Subjects: []string{"bare.>"}, Compression: jetstream.S2Compression, MaxAge: time.Hour})
	kit.Must(b, err)
	var all []*nats.Msg
	for _, m := range messages {
		all = append(all, &nats.Msg{Subject: "bare." + m.Subject(), Data: m.Data()})
	}
	began, before := time.Now(), use(os.Getpid()).CPU
	for _, m := range all {
		_, err := js.PublishMsgAsync(m, jetstream.WithStallWait(patience))
		kit.Must(b, err)
	}
	<-js.PublishAsyncComplete()
	took, cpu = time.Since(began), use(os.Getpid()).CPU-before
	info, err := js.Stream(b.Context(), "bare")
	kit.Must(b, err)
	if stored := info.CachedInfo().State.Msgs; stored != uint64(len(messages)) {
		b.Fatalf("%d of %d messages are stored", stored, len(messages))
	}
	kit.Must(b, js.DeleteStream(b.Context(), "bare"))
	return took, cpu
}
