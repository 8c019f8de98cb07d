// Package doctor finds out why a node's PLEG is not healthy. It makes the CRI calls
// that a relist makes, measures each, and compares the results with the known causes.
// Each call and the whole examination have a deadline: a runtime that hangs gets a
// partial report.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// A kubelet lists all pods once a period. If the last list is older than the threshold, its PLEG is
	// not healthy.
	period, threshold = pipeline.DefaultRelistPeriod, pipeline.DefaultRelistThreshold
	// listLimit is what the kubelet and the runtimes accept.
	listLimit = 16 << 20
	// maxAnswer lets the doctor measure a list that exceeds the limit, if only the
	// client enforces it.
	maxAnswer = 256 << 20
)

// Options configure an examination. All fields except Source and DialOptions are
// required.
type Options struct {
	// Endpoint is the address of the runtime. Source says where the address comes
	// from.
	Endpoint, Source string
	// Timeout bounds the examination, CallTimeout each call. A call that takes
	// longer is hung.
	Timeout, CallTimeout time.Duration
	// Pressure contains the files of the kernel's /proc/pressure.
	Pressure fs.FS
	// Cgroups contains the cgroups, as /sys/fs/cgroup does. If nil, the doctor does not
	// look for containers without a process. Proc contains the processes, as /proc does; if
	// nil, they are not known.
	Cgroups, Proc fs.FS
	// Sockets returns the connected unix sockets. If nil, the doctor does not look for clients that
	// do not read.
	Sockets func() ([]host.Socket, error)
	// Ask returns what the daemon of this node knows, or nil if there is none: NoDaemon says why.
	// It is called after the examination, so that its ages are current.
	Ask      func(context.Context) *Daemon
	NoDaemon string
	// Usage returns how many percent of a filesystem's bytes and inodes are in use.
	Usage func(path string) (used, inodes float64, err error)
	// DialOptions are passed to [cri.Options].
	DialOptions []grpc.DialOption
}

// examination is the state of one call of [Examine].
type examination struct {
	Options
	client  *cri.Client
	runtime runtimeapi.RuntimeServiceClient
	report  *Report
	stuck   []pleg.Stuck // pods whose shim is stopped
	unread  []pleg.Unread
	disk    *pleg.Disk

	mu    sync.Mutex // for status calls, which are made at the same time
	calls []madeCall
}

// Examine examines a runtime and its node. It blocks until it has made all calls,
// Options.Timeout has passed or ctx ends, and reports what it found by then. It never
// fails: a failure of the runtime is a finding.
func Examine(ctx context.Context, o Options) *Report {
	began := time.Now()
	e := &examination{Options: o, report: &Report{
		At: began, Endpoint: o.Endpoint, Source: o.Source, NoDaemon: o.NoDaemon,
		Relist: Relist{PeriodSeconds: period.Seconds(), ThresholdSeconds: threshold.Seconds()},
	}}
	e.readPressure()
	bounded, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var failed []verdict.Finding
	if f := e.connect(bounded); f != nil {
		failed = append(failed, *f)
	} else {
		e.makeCalls(bounded)
		e.close()
	}
	e.summarize()
	e.report.TookSeconds = time.Since(began).Seconds()
	if o.Ask != nil {
		e.report.Daemon = o.Ask(ctx)
	}
	return e.judge(failed)
}

// Judge returns the report of what the daemon of a node knows, without an examination of
// the runtime. extra are findings of the caller.
func Judge(d *Daemon, extra ...verdict.Finding) *Report {
	e := &examination{report: &Report{At: time.Now(), Daemon: d, Calls: []Call{}}}
	return e.judge(extra)
}

// makeCalls makes all calls after the first. Their errors are recorded.
func (e *examination) makeCalls(ctx context.Context) {
	answer, _ := e.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	for _, c := range answer.GetStatus().GetConditions() {
		e.report.Conditions = append(e.report.Conditions, Condition{c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage()})
	}
	items := e.list(ctx)
	e.report.count(items)
	e.inspect(ctx, items)
	e.imageFilesystem(ctx)
	e.readCgroups(ctx, items)
	e.findStuck(items)
	e.findUnread(ctx)
}

const rename = "name the runtime's socket with --runtime-endpoint"

// connectFindings are the findings for the problems of a connection, as the daemon would have
// them. Any other problem counts as a runtime that is stopped. A finding without advice has the
// advice of its cause.
var connectFindings = map[cri.Problem]verdict.Finding{
	cri.NoSocket:     {Advice: verdict.RuntimeStopped.Advice() + "; if it runs, " + rename},
	cri.SocketGone:   {Cause: verdict.Fallback, What: "cannot be reached"},
	cri.NotSocket:    {Advice: rename},
	cri.NotCRI:       {Advice: "enable the runtime's CRI plugin, or " + rename},
	cri.NoPermission: {Cause: verdict.NoPermission, What: "cannot be asked"},
	cri.NoAnswer:     {Cause: verdict.RuntimeHangs, What: "hangs", AtLeast: true},
	cri.Failing:      {Cause: verdict.RuntimeFails, What: "fails"},
}

func (e *examination) close() { _ = e.client.Close() }

// connect asks for the version of the runtime. If it does not answer, connect returns why, and there
// is nothing to close.
func (e *examination) connect(ctx context.Context) *verdict.Finding {
	dial := append(e.DialOptions, grpc.WithChainUnaryInterceptor(e.call))
	client, err := cri.New(e.Endpoint, cri.Options{ConnectTimeout: e.CallTimeout, MaxRecvBytes: maxAnswer, DialOptions: dial})
	if err != nil {
		return &verdict.Finding{Cause: verdict.RuntimeStopped, Severity: verdict.Problem, Summary: err.Error(), Advice: "name a unix socket with --runtime-endpoint"}
	}
	e.client, e.runtime = client, runtimeapi.NewRuntimeServiceClient(client.Conn())
	began := time.Now()
	version, err := client.Check(ctx)
	if err == nil {
		e.report.Runtime = view.Printable(version.RuntimeName + " " + version.RuntimeVersion)
		return nil
	}
	e.close()
	failed := &cri.ConnectError{Endpoint: e.Endpoint, Problem: cri.NoAnswer, Reason: "it did not answer before the examination ended", Err: err}
	_ = errors.As(err, &failed)
	f := connectFindings[failed.Problem]
	f.Cause, f.What = cmp.Or(f.Cause, verdict.RuntimeStopped), cmp.Or(f.What, "is stopped")
	f.Severity, f.Subject, f.Evidence = verdict.Problem, "the runtime", failed.Endpoint+": "+failed.Reason
	f.Detail = ": " + f.Evidence
	if f.AtLeast {
		f.Since = began
	}
	if failed.Problem > cri.NoConnection {
		f.Detail = ": " + failed.Endpoint + ": Version: " + failed.Reason
		f.Evidence += ": " + status.Convert(failed.Err).Message()
	} else {
		e.calls = nil // the call was not made
	}
	if failed.Problem == cri.NoAnswer {
		f = f.WithRuntime(client.Report().Process)
	}
	f = f.Completed(time.Now())
	return &f
}
