package kit

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// Simulation is a pipeline on a simulated CRI runtime, in the bubble of a test: one subscriber gets
// all events, and a history records the changes of the runtime.
type Simulation struct {
	*Pipeline
	Memory  // the socket of the runtime
	Node    *simruntime.Runtime
	Client  *cri.Client
	History *promises.History

	t           testing.TB
	stream      promises.Stream
	subscriber  *Subscriber
	corrections *Subscriber // a replay includes the corrections in the events
	stopServing func() error
}

// Simulate runs a pipeline on a runtime until the test ends, and waits until it rests. o contains the
// options of the client. If around is given, the pipeline gets its result in place of the client.
func Simulate(t testing.TB, node *simruntime.Runtime, options pipeline.Options, o cri.Options, around ...func(*cri.Client) pleg.Runtime) *Simulation {
	t.Helper()
	s := &Simulation{Node: node, History: promises.NewHistory(), t: t}
	o.DialOptions = append(o.DialOptions, grpc.WithContextDialer(s.Dial))
	var err error
	if s.Client, err = cri.New("/simulated", o); err != nil {
		t.Fatal(err)
	}
	options.Runtime = s.Client
	for _, f := range around {
		options.Runtime = f(s.Client)
	}
	s.Pipeline = New(t, options)
	s.stream.Cache, s.stream.State.Look = s.Cache(), s.Cache().Get
	s.stream.Network = true
	s.subscriber = s.Follow(t, pleg.SubscribeOptions{Filter: pleg.Filter{NetworkEvents: true}}, s.stream.Add)
	s.corrections = s.Follow(t, pleg.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerCorrected}}}, func(pleg.Event) {})
	t.Cleanup(func() {
		s.StopServing()
		if err := s.Client.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	s.Serve()
	s.Start(t)
	synctest.Wait()
	return s
}

// Serve makes the runtime available again after StopServing.
func (s *Simulation) Serve() {
	listener := s.Listen()
	s.stopServing = Run(s.t, func(ctx context.Context) error { return s.Node.Serve(ctx, listener) })
}

// StopServing makes the runtime unavailable.
func (s *Simulation) StopServing() {
	_ = s.stopServing() // Run reports the error
}

// Populate adds pods and records them.
func (s *Simulation) Populate(p simruntime.Population) []*pleg.PodStatus {
	pods := s.Node.Populate(p)
	s.record()
	return pods
}

// Churn does random actions at 20 each second and records the result of each.
func (s *Simulation) Churn(seed uint64, actions int) {
	s.t.Helper()
	err := s.Node.Churn(context.Background(), simruntime.ChurnOptions{
		Seed: seed, Rate: 20, Pods: 12, Actions: actions, Observe: func(pleg.PodUID) { s.record() },
	})
	Must(s.t, err)
}

// Published returns all events so far.
func (s *Simulation) Published() []pleg.Event { return s.subscriber.Events() }

// Corrections returns all corrections of events so far.
func (s *Simulation) Corrections() []pleg.Event { return s.corrections.Events() }

func (s *Simulation) record() { s.History.Record(s.Truth()) }

// Truth returns the state of the runtime.
func (s *Simulation) Truth() promises.Truth { return promises.TruthOf(s.Node.Pods()) }

// RequirePromises stops the pipeline and fails unless its events kept all promises; All, NoSync,
// Repeats and Lies of promised limit them. It returns the events.
func (s *Simulation) RequirePromises(promised promises.Stream) []pleg.Event {
	s.t.Helper()
	_ = s.Stop() // Run reports the error
	<-s.subscriber.Done
	s.stream.All, s.stream.NoSync, s.stream.Repeats, s.stream.Lies = promised.All, promised.NoSync, promised.Repeats, promised.Lies
	s.stream.History, s.stream.Epoch, s.stream.Truth, s.stream.Cached = s.History, s.Epoch(), s.Truth(), s.Cache().List()
	if err := s.stream.Check(); err != nil {
		s.t.Error(err)
	}
	return s.stream.Events
}
