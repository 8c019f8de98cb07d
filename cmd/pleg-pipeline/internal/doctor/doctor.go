// Package doctor finds out why a node's PLEG is not healthy. It runs a pipeline on the runtime for
// some seconds, as the daemon does for longer, and prints the same verdict.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Options configure an examination.
type Options struct {
	// Endpoint is the address of the runtime. Source says where the address comes
	// from.
	Endpoint, Source string
	// Watch is how long the node is watched.
	Watch time.Duration
	// Host says where to look on the node. Its endpoint is set.
	Host host.Options
	// Pressure contains the files of the kernel's /proc/pressure.
	Pressure fs.FS
	// Ask returns the knowledge of this node's daemon, or nil if there is none: NoDaemon says why.
	// It is called after the examination, so that its ages are current.
	Ask      func(context.Context) *Daemon
	NoDaemon string
	// DialOptions are passed to [cri.Options].
	DialOptions []grpc.DialOption
}

// examination is the state of one call of [Examine].
type examination struct {
	Options
	report *Report
	// seen is the status of the pipeline; nil if none could run.
	seen *pleg.Status
}

// Examine watches a runtime and its node for Options.Watch, or until ctx ends. It never fails: a
// failure of the runtime is a finding.
func Examine(ctx context.Context, o Options) *Report {
	e := &examination{Options: o, report: &Report{At: time.Now(), Endpoint: o.Endpoint, Source: o.Source, NoDaemon: o.NoDaemon}}
	var failed []verdict.Finding
	if f := e.watch(ctx); f != nil {
		failed = append(failed, *f)
	}
	e.report.Node.readPressure(o.Pressure)
	e.report.TookSeconds = time.Since(e.report.At).Seconds()
	if o.Ask != nil {
		e.report.Daemon = o.Ask(context.WithoutCancel(ctx))
	}
	return e.judge(failed)
}

// Judge returns the report from the status of a node's daemon, without an examination of the
// runtime. extra are findings of the caller.
func Judge(d *Daemon, extra ...verdict.Finding) *Report {
	e := &examination{report: &Report{At: time.Now(), Daemon: d}}
	return e.judge(extra)
}

// checkTimeout bounds the question for the version of the runtime. A runtime that does not answer is
// watched anyway.
const checkTimeout = 2 * time.Second

// watch runs a pipeline on the runtime. If that is not possible, it returns why.
func (e *examination) watch(ctx context.Context) *verdict.Finding {
	client, err := cri.New(e.Endpoint, cri.Options{ConnectTimeout: checkTimeout, DialOptions: e.DialOptions})
	if err != nil {
		return &verdict.Finding{Cause: verdict.RuntimeStopped, Severity: verdict.Problem, Summary: err.Error(), Advice: "name a unix socket with --runtime-endpoint"}
	}
	defer func() { _ = client.Close() }()
	version, err := client.Check(ctx)
	e.report.Runtime = view.Printable(version.RuntimeName + " " + version.RuntimeVersion)
	if err != nil {
		e.report.Runtime = ""
		var why *cri.ConnectError
		if !errors.As(err, &why) || why.Problem != cri.NoAnswer {
			return cannotConnect(e.Endpoint, why, err)
		}
	}
	o := e.Host
	o.Endpoint = e.Endpoint
	runtime := host.Watch(client, o)
	pipe, err := pipeline.New(pipeline.Options{Runtime: runtime, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return &verdict.Finding{Cause: verdict.RuntimeFails, Severity: verdict.Problem, Summary: err.Error()}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts errgroup.Group
	parts.Go(func() error { return pipe.Run(running) })
	parts.Go(func() error { return runtime.Run(running, pipe) })
	select {
	case <-time.After(e.Watch):
	case <-ctx.Done():
	}
	pods := pipe.Cache().List()
	seen, _ := pipe.Status(ctx)
	e.seen = &seen
	e.report.Counts.count(pods)
	e.report.Node.Facts, e.report.Lists = runtime.Node.Facts()
	stop()
	_ = parts.Wait() // the causes of stop
	return nil
}

const rename = "name the runtime's socket with --runtime-endpoint"

// connectFindings are the findings for the problems of a connection, as the daemon reports them.
// Any other problem counts as a runtime that is stopped. A finding without advice gets the advice
// of its cause.
var connectFindings = map[cri.Problem]verdict.Finding{
	cri.NoSocket:     {Advice: verdict.RuntimeStopped.Advice() + "; if it runs, " + rename},
	cri.SocketGone:   {Cause: verdict.Fallback, What: "cannot be reached"},
	cri.NotSocket:    {Advice: rename},
	cri.NotCRI:       {Advice: "enable the runtime's CRI plugin, or " + rename},
	cri.NoPermission: {Cause: verdict.NoPermission, What: "cannot be asked"},
	cri.Failing:      {Cause: verdict.RuntimeFails, What: "fails"},
}

// cannotConnect returns the finding of a runtime that cannot be watched. why is nil if ctx ended before it
// answered.
func cannotConnect(endpoint string, why *cri.ConnectError, err error) *verdict.Finding {
	if why == nil {
		why = &cri.ConnectError{Endpoint: endpoint, Problem: cri.Failing, Reason: "it did not answer before the examination ended", Err: err}
	}
	f := connectFindings[why.Problem]
	if why.Problem == cri.NoPermission {
		f.Advice = allowed(os.Geteuid())
	}
	f.Cause, f.What = cmp.Or(f.Cause, verdict.RuntimeStopped), cmp.Or(f.What, "is stopped")
	f.Severity, f.Subject, f.Evidence = verdict.Problem, "the runtime", why.Endpoint+": "+why.Reason
	f.Detail = ": " + f.Evidence
	if why.Problem > cri.NoConnection {
		f.Detail = ": " + why.Endpoint + ": Version: " + why.Reason
		f.Evidence += ": " + verdict.Plain(why.Err)
	}
	f = f.Completed(time.Now())
	return &f
}

// allowed advises a user who may not connect.
func allowed(uid int) string {
	if uid != 0 {
		return verdict.NoPermission.Advice()
	}
	return "root is denied, too: run this command on the node itself, outside of a container, or look for AppArmor or SELinux (dmesg)"
}

// merged adds to the daemon's status the facts that only this process sees: the daemon may lack
// access to the node's processes, network or disk.
func merged(daemon pleg.Status, own *pleg.Status) pleg.Status {
	if own == nil {
		return daemon
	}
	s := daemon
	n, ours := nodestate.Of(daemon.Details), nodestate.Of(own.Details)
	n.Stuck = slices.Clone(n.Stuck)
	for _, found := range ours.Stuck {
		if !slices.ContainsFunc(n.Stuck, func(p nodestate.Stuck) bool { return p.UID == found.UID }) {
			n.Stuck = append(n.Stuck, found)
		}
	}
	if len(ours.Unread) > 0 { // ours name a process that the daemon may not see
		known := n.Unread
		n.Unread = slices.Clone(ours.Unread)
		if len(known) > 0 {
			n.Unread[0].Since = known[0].Since
		}
	}
	n.Disk = cmp.Or(n.Disk, ours.Disk)
	s.Details = n
	s.Failed = slices.Clone(s.Failed)
	for _, found := range own.Failed {
		if !slices.ContainsFunc(s.Failed, func(f pleg.Failed) bool { return f.UID == found.UID }) {
			s.Failed = append(s.Failed, found)
		}
	}
	s.Troubles = slices.Clone(s.Troubles)
	for _, found := range own.Troubles {
		if !slices.ContainsFunc(s.Troubles, func(t pleg.Trouble) bool { return t.Cause == found.Cause && t.Subject == found.Subject }) {
			s.Troubles = append(s.Troubles, found)
		}
	}
	return s
}
