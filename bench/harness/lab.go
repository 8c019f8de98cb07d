package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

type client = child[control.Command, control.Report]

type node = child[control.Order, control.Answer]

// lab is one node and one candidate that is connected to it, each in its own
// process.
type lab struct {
	node   *node
	client *client
}

// newLab starts a simulated node and the candidate's process. The candidate
// itself starts in [lab.startClient].
func (b *bench) newLab(ctx context.Context, c Candidate, period, timeout time.Duration) (*lab, error) {
	socket := filepath.Join(b.temp, fmt.Sprintf("cri-%d.sock", b.labs.Add(1)))
	l := new(lab)
	var err error
	l.node, err = start[control.Order, control.Answer](ctx, b.program("node"), "-socket", socket)
	if err != nil {
		return nil, err
	}
	// The node answers once it listens on the socket.
	if _, err := l.node.ask(control.Order{Do: control.NodeReset}); err != nil {
		return nil, err
	}
	l.client, err = b.newClient(ctx, c, socket, period, timeout)
	if err != nil {
		l.node.stop()
		return nil, err
	}
	return l, nil
}

// newPopulatedLab is a lab whose candidate knows all pods and, if it follows CRI
// events, relies on its event stream.
func (b *bench) newPopulatedLab(ctx context.Context, c Candidate, period time.Duration, pods, containers int) (*lab, error) {
	l, err := b.newLab(ctx, c, period, callTimeout)
	if err != nil {
		return nil, err
	}
	err = l.populate(pods, containers)
	if err == nil && c.events() {
		err = pause(ctx, streamUp)
	}
	if err != nil {
		l.close()
	}
	return l, err
}

// newClient starts the process of a candidate that will connect to the socket.
func (b *bench) newClient(ctx context.Context, c Candidate, socket string, period, timeout time.Duration) (*client, error) {
	args := []string{"-socket", socket, "-period", period.String(), "-timeout", timeout.String()}
	program := "client"
	switch c {
	case kubelet: // cannot write a CPU profile
		program = "kubelet"
		args = append(args, "-root", b.temp)
	case serial:
		args = append(args, "-candidate", "serial")
	default:
		args = append(args, "-inspectors", strconv.Itoa(c.inspectors()), "-fixed="+strconv.FormatBool(c.fixed()),
			"-events="+strconv.FormatBool(c.events()))
	}
	if b.profiles != "" && c != kubelet {
		args = append(args, "-cpuprofile", filepath.Join(b.profiles, fmt.Sprintf("%s-%d.prof", c, b.labs.Load())))
	}
	return start[control.Command, control.Report](ctx, b.program(program), args...)
}

func (l *lab) close() {
	l.client.stop()
	l.node.stop()
}

// order sends orders to the node, one after the other.
func (l *lab) order(orders ...control.Order) error {
	for _, o := range orders {
		if _, err := l.node.ask(o); err != nil {
			return err
		}
	}
	return nil
}

// expect begins a window of measurement that ends with the wanted events. keep
// records every event.
func (l *lab) expect(want map[string]int, keep bool) error {
	_, err := l.client.ask(control.Command{Do: control.ClientExpect, Want: want, Keep: keep})
	return err
}

// window measures change from its beginning to the last wanted event. It returns
// an error if other events than the wanted ones arrived: then the candidate did
// other work.
func (l *lab) window(want map[string]int, keep bool, change func() error) (control.Report, error) {
	if err := l.expect(want, keep); err != nil {
		return control.Report{}, err
	}
	if err := change(); err != nil {
		return control.Report{}, err
	}
	r, err := l.client.ask(control.Command{Do: control.ClientWait, TimeoutMS: int(longest.Milliseconds())})
	if err != nil {
		return r, err
	}
	return r, verify(r, want)
}

// populate adds pods and starts the candidate, which then knows all of them.
func (l *lab) populate(pods, containers int) error {
	if err := l.order(control.Order{Do: control.NodePopulate, Pods: pods, Containers: containers}); err != nil {
		return err
	}
	_, err := l.startClient(started(pods, containers))
	return err
}

// startClient starts the candidate and waits for its first events.
func (l *lab) startClient(want map[string]int) (control.Report, error) {
	return l.window(want, false, func() error {
		_, err := l.client.ask(control.Command{Do: control.ClientStart})
		return err
	})
}

// awaitRelists waits until the node has served that many relists, and returns
// what it counted in them.
func (l *lab) awaitRelists(ctx context.Context, relists int) (control.Answer, error) {
	began := time.Now()
	at, err := l.node.ask(control.Order{Do: control.NodeReset})
	for err == nil && at.RPCs["ListContainers"].Calls < int64(relists) {
		if time.Since(began) > longest {
			return at, fmt.Errorf("%d relists in %v, want %d", at.RPCs["ListContainers"].Calls, longest, relists)
		}
		if err = pause(ctx, idlePeriod); err == nil {
			at, err = l.node.ask(control.Order{Do: control.NodeStats})
		}
	}
	return at, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func verify(r control.Report, want map[string]int) error {
	got := make(map[string]int, len(r.Seen))
	for name, seen := range r.Seen {
		got[name] = seen.Count
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("wrong work: got events %v, want %v (done: %t)", got, want, r.Done)
	}
	return nil
}

// burstMetrics combines what the client saw with what the node counted.
func (l *lab) burstMetrics(c Candidate, r control.Report, pods int) (Metrics, error) {
	at, err := l.node.ask(control.Order{Do: control.NodeStats})
	if err != nil {
		return nil, err
	}
	m := Metrics{
		"client": r.Usage.CPUSeconds * 1e3, "server": at.CPUSeconds * 1e3,
		"allocs": float64(r.Usage.Allocs), "bytes": float64(r.Usage.AllocBytes) / 1024,
		"peak": float64(at.PeakInFlight), "waiting": float64(at.PeakArrived),
		"calls":  float64(statusCalls(at)) / float64(pods),
		"missed": float64(r.Missed), "repaired": float64(r.Repaired),
	}
	if r.Width > 0 {
		m["width"] = float64(r.Width)
	}
	first := true
	for _, seen := range r.Seen {
		if first || seen.FirstMS < m["first"] {
			m["first"], first = seen.FirstMS, false
		}
		m["last"] = max(m["last"], seen.LastMS)
	}
	if limit := limit(at, c); limit > 1 {
		m["limit"], m["ratio"] = limit, m["last"]/limit
	}
	return m, nil
}

func statusCalls(at control.Answer) int64 {
	return at.RPCs["ContainerStatus"].Calls + at.RPCs["PodSandboxStatus"].Calls
}

// limit is the shortest time in milliseconds for a client with as many status
// calls in flight: one list, and the time of all status calls divided by the most
// in flight. The calls in flight do not include the lists.
func limit(at control.Answer, c Candidate) float64 {
	list := max(mean(at.RPCs["ListContainers"]), mean(at.RPCs["ListPodSandbox"]))
	total := at.RPCs["ContainerStatus"].TimeMS + at.RPCs["PodSandboxStatus"].TimeMS
	width := min(c.width(), at.PeakInFlight)
	if width == 0 {
		return 0
	}
	return list + total/float64(width)
}

func mean(r control.RPC) float64 {
	if r.Calls == 0 {
		return 0
	}
	return r.TimeMS / float64(r.Calls)
}
