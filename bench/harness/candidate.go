package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// Candidate is what is measured: "serial", "kubelet", "pipeline-N" with up to N
// inspectors and as many status calls in flight, "fixed-N" with always N, or
// "events-N", which is pipeline-N that follows the runtime's events.
type Candidate string

// The candidates that are not pipelines.
const (
	serial  Candidate = "serial"
	kubelet Candidate = "kubelet"
)

// pipelineOf is the pipeline with that many inspectors.
func pipelineOf(inspectors int) Candidate {
	return Candidate("pipeline-" + strconv.Itoa(inspectors))
}

// fixedOf is the pipeline that always uses that many inspectors.
func fixedOf(inspectors int) Candidate {
	return Candidate("fixed-" + strconv.Itoa(inspectors))
}

// eventsOf is the pipeline with that many inspectors that follows events.
func eventsOf(inspectors int) Candidate {
	return Candidate("events-" + strconv.Itoa(inspectors))
}

// parseCandidate returns an error for a name that is not a candidate.
func parseCandidate(name string) (Candidate, error) {
	c := Candidate(name)
	if c == serial || c == kubelet || c.inspectors() > 0 {
		return c, nil
	}
	return "", fmt.Errorf("unknown candidate %q: want serial, kubelet, pipeline-N, fixed-N or events-N with N of at least 1", name)
}

// inspectors returns 0 for what is not a pipeline.
func (c Candidate) inspectors() int {
	kind, number, _ := strings.Cut(string(c), "-")
	if kind != "pipeline" && kind != "fixed" && kind != "events" {
		return 0
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// fixed is false for what finds its own width.
func (c Candidate) fixed() bool { return strings.HasPrefix(string(c), "fixed-") }

// events is true for what follows the runtime's events.
func (c Candidate) events() bool { return strings.HasPrefix(string(c), "events-") }

// findsWidth is true for what learns how many inspections the runtime serves.
func (c Candidate) findsWidth() bool { return c.inspectors() > 1 && !c.fixed() }

// width is the most status calls the candidate has in flight.
func (c Candidate) width() int { return max(1, c.inspectors()) }

type client = child[control.Command, control.Report]

type node = child[control.Order, control.Answer]

// lab is one simulated node and one candidate that is connected to it.
type lab struct {
	node   *node
	client *client
}

// settings of a lab that are the client's.
type settings struct {
	period  time.Duration
	timeout time.Duration
}

// newLab starts the two processes. The candidate waits for
// [control.ClientStart].
func (b *bench) newLab(ctx context.Context, c Candidate, s settings) (*lab, error) {
	socket := filepath.Join(b.temp, fmt.Sprintf("cri-%d.sock", b.labs.Add(1)))
	l := new(lab)
	var err error
	l.node, err = start[control.Order, control.Answer](ctx, b.program("node"), "-socket", socket)
	if err != nil {
		return nil, err
	}
	// The answer says that the socket is there.
	if _, err := l.node.ask(control.Order{Do: control.NodeReset}); err != nil {
		return nil, err
	}
	l.client, err = b.newClient(ctx, c, socket, s)
	if err != nil {
		l.node.stop()
		return nil, err
	}
	return l, nil
}

// newClient starts a candidate that will connect to the socket.
func (b *bench) newClient(ctx context.Context, c Candidate, socket string, s settings) (*client, error) {
	args := []string{"-socket", socket, "-period", s.period.String(), "-timeout", s.timeout.String()}
	program := "client"
	switch c {
	case kubelet: // has no profile of its own
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

// order tells the node and the clients several things, one after the other.
func (l *lab) order(orders ...control.Order) error {
	for _, o := range orders {
		if _, err := l.node.ask(o); err != nil {
			return err
		}
	}
	return nil
}

// expect begins a window that wants so many events.
func (l *lab) expect(want map[string]int, keep bool) error {
	_, err := l.client.ask(control.Command{Do: control.ClientExpect, Want: want, Keep: keep})
	return err
}

// wait returns what came in the window; it is an error if that is not exactly
// what was wanted: then the wrong work was measured.
func (l *lab) wait(want map[string]int, timeout time.Duration) (control.Report, error) {
	r, err := l.client.ask(control.Command{Do: control.ClientWait, TimeoutMS: int(timeout.Milliseconds())})
	if err != nil {
		return r, err
	}
	return r, verify(r, want, timeout)
}

func verify(r control.Report, want map[string]int, timeout time.Duration) error {
	got := make(map[string]int, len(r.Seen))
	for name, seen := range r.Seen {
		got[name] = seen.Count
	}
	for name := range want {
		if got[name] != want[name] {
			return fmt.Errorf("wrong work: got events %v, want %v (done: %t, waited for up to %v)", got, want, r.Done, timeout)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			return fmt.Errorf("wrong work: got events %v, want %v", got, want)
		}
	}
	return nil
}
