package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Report is the result of an examination. Its JSON form is one of the program's
// outputs.
type Report struct {
	At time.Time `json:"at"`
	// Verdict is the result in one line: the worst finding, or that there is none.
	Verdict string `json:"verdict"`
	// TookSeconds is how long the examination took.
	TookSeconds float64 `json:"tookSeconds"`
	Endpoint    string  `json:"endpoint,omitempty"`
	Source      string  `json:"source,omitempty"`
	Runtime     string  `json:"runtime,omitempty"`
	// Daemon is the knowledge of this node's daemon; nil if none was asked: NoDaemon says why.
	Daemon   *Daemon `json:"daemon,omitempty"`
	NoDaemon string  `json:"noDaemon,omitempty"`
	Counts   Counts  `json:"counts"`
	// Lists are the two lists of all pods.
	Lists []host.List `json:"lists,omitempty"`
	Node  Node        `json:"node"`
	// Findings are the known causes that fit, problems first.
	Findings []verdict.Finding `json:"findings"`

	good string
}

// Counts are the numbers of pods, sandboxes and containers.
type Counts struct {
	Pods       int `json:"pods"`
	Sandboxes  int `json:"sandboxes"`
	Ready      int `json:"readySandboxes"`
	Containers int `json:"containers"`
	Running    int `json:"running"`
	Exited     int `json:"exited"`
}

// count counts the pods and containers in the cache of a pipeline.
func (c *Counts) count(pods []cache.Entry) {
	for _, e := range pods {
		c.Pods++
		if e.Last == nil {
			continue
		}
		for _, s := range e.Last.Sandboxes {
			c.Sandboxes++
			if s.Ready {
				c.Ready++
			}
		}
		for _, of := range e.Last.Containers {
			c.Containers++
			switch of.State {
			case pleg.StateRunning:
				c.Running++
			case pleg.StateExited:
				c.Exited++
			}
		}
	}
}

// Daemon is the knowledge of a node's daemon. It has watched for longer than an examination.
type Daemon struct {
	Socket string `json:"socket"`
	// Verdict is the verdict of the daemon alone.
	Verdict verdict.Verdict `json:"verdict,omitzero"`
	// Silent is the reason why the daemon did not answer; empty if it did. Advice says what to do
	// then.
	Silent string `json:"silent,omitempty"`
	Advice string `json:"-"`

	status pleg.Status
	pid    int // of a daemon that does not answer; 0 if it is not known
}

// SilentDaemon returns a daemon that does not answer. p is its process, or nil. The state of a
// process that is able to answer explains nothing.
func SilentDaemon(socket, why string, p *nodestate.Process) *Daemon {
	d := &Daemon{Socket: socket, Silent: why}
	if p == nil {
		return d
	}
	d.pid = p.PID
	switch p.State {
	case "T", "t":
		d.Silent = fmt.Sprintf("its process %d is stopped (state %s)", p.PID, p.State)
		d.Advice = fmt.Sprintf("continue it (kill -CONT %d)", p.PID)
	case "D":
		d.Silent = fmt.Sprintf("its process %d waits in the kernel (state D)", p.PID)
	}
	return d
}

// Frozen reports whether the daemon's process is stopped.
func (d *Daemon) Frozen() bool { return d.Advice != "" }

// Err returns why the daemon does not answer, and what to do, as a [verdict.Error].
func (d *Daemon) Err() error {
	f := d.finding("")
	f.Severity = verdict.Problem // the state of the runtime is unknown
	return verdict.Error{Finding: f.Completed(time.Now())}
}

// answers reports whether there is a daemon that answers.
func (d *Daemon) answers() bool { return d != nil && d.Silent == "" }

// finding says that the daemon does not answer. runtime describes the state of the runtime.
func (d *Daemon) finding(runtime string) verdict.Finding {
	return verdict.Finding{
		Cause: verdict.DaemonSilent, Severity: verdict.Warning, Advice: d.Advice,
		Summary: fmt.Sprintf("the daemon at %s does not answer: %s%s", d.Socket, d.Silent, runtime),
	}
}

// Endpoint returns the address of the daemon's runtime; "" if it is not known.
func (d *Daemon) Endpoint() string {
	if d == nil {
		return ""
	}
	return d.status.Endpoint
}

// NewDaemon returns the facts in the status of a daemon.
func NewDaemon(socket string, s pleg.Status) *Daemon {
	return &Daemon{Socket: socket, Verdict: verdict.Of(s), status: s}
}

// connected reports whether the daemon is connected to the runtime.
func (d *Daemon) connected() bool {
	return d.status.Relist.Failures == 0 && !d.status.Relist.Success.IsZero()
}

// Healthy reports whether no problem was found.
func (r *Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f verdict.Finding) bool { return f.Severity == verdict.Problem })
}

// Denied returns the finding that this user may not ask the runtime, unless a daemon knows more.
func (r *Report) Denied() *verdict.Finding {
	if i := slices.IndexFunc(r.Findings, func(f verdict.Finding) bool { return f.Cause == verdict.NoPermission }); i >= 0 && !r.Daemon.answers() {
		return &r.Findings[i]
	}
	return nil
}

const (
	// maxLine is how many bytes of a line the node-problem-detector keeps, with the line break.
	maxLine = 300
	// maxSubject leaves room for the reason.
	maxSubject = 100
)

// Lasting returns the verdict without ages, short enough for the node-problem-detector.
func (r *Report) Lasting() string {
	findings := slices.Clone(r.Findings)
	if len(findings) > 0 {
		findings[0].Subject = view.Cut(findings[0].Subject, maxSubject)
	}
	v := verdict.New(findings, r.good)
	text := []rune(view.Printable(v.Lasting()))
	for len(string(text)) >= maxLine {
		text = append(text[:len(text)-2], '…')
	}
	return string(text)
}
