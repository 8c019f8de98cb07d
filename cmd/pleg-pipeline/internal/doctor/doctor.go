// Package doctor finds out why a node's PLEG is not healthy. It makes the CRI calls
// that a relist makes, measures each, and compares the results with the known causes.
// Each call and the whole examination have a deadline: a runtime that hangs gets a
// partial report.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

const (
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
	// Period is the relist period. Threshold is the age of the last relist at which
	// PLEG is not healthy.
	Period, Threshold time.Duration
	// Pressure contains the files of the kernel's /proc/pressure.
	Pressure fs.FS
	// Cgroups contains the cgroups, as /sys/fs/cgroup does. If nil, the doctor does not
	// look for containers without a process.
	Cgroups fs.FS
	// Daemon is what the daemon of this node knows; nil if there is none.
	Daemon *Daemon
	// Usage returns how many percent of a filesystem's bytes and inodes are in use.
	Usage func(path string) (used, inodes float64, err error)
	// DialOptions are those of [cri.Options].
	DialOptions []grpc.DialOption
}

// examination is the state of one call of [Examine].
type examination struct {
	Options
	client  *cri.Client
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	report  *Report

	mu    sync.Mutex // for status calls, which are made at the same time
	calls []madeCall
}

// Examine examines a runtime and its node. It blocks until it has made all calls,
// Options.Timeout has passed or ctx ends, and reports what it found by then. It never
// fails: a failure of the runtime is a finding.
func Examine(ctx context.Context, o Options) *Report {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	e := &examination{Options: o, report: &Report{
		At: began, Endpoint: o.Endpoint, Source: o.Source, Findings: []Finding{},
		Daemon: o.Daemon, Relist: Relist{PeriodSeconds: o.Period.Seconds(), ThresholdSeconds: o.Threshold.Seconds()},
	}}
	e.readPressure()
	failed := e.examineRuntime(ctx)
	e.summarize()
	if failed == nil || e.Daemon != nil {
		e.judge()
	}
	if failed != nil {
		if failed.Cause == NoPermission && e.Daemon != nil {
			failed.Severity = Warning // the daemon knows more
		}
		e.report.Findings = append([]Finding{*failed}, e.report.Findings...)
	}
	e.report.TookSeconds = time.Since(began).Seconds()
	return e.report.judged()
}

// Judge returns the report of what the daemon of a node knows, without an examination of
// the runtime. extra are findings of the caller.
func Judge(d *Daemon, extra ...Finding) *Report {
	e := &examination{Options: Options{Daemon: d}, report: &Report{At: time.Now(), Daemon: d, Calls: []Call{}, Findings: extra}}
	if d != nil {
		e.judge()
	}
	return e.report.judged()
}

// examineRuntime makes all calls. If the runtime does not answer, it returns why.
func (e *examination) examineRuntime(ctx context.Context) *Finding {
	client, err := cri.New(e.Endpoint, cri.Options{ConnectTimeout: e.CallTimeout, MaxRecvBytes: maxAnswer, DialOptions: e.DialOptions})
	if err != nil {
		return new(newFinding(RuntimeStopped, Problem, err.Error(), "", "name a unix socket with --runtime-endpoint"))
	}
	defer func() { _ = client.Close() }()
	e.client, e.runtime, e.images = client, runtimeapi.NewRuntimeServiceClient(client.Conn()), runtimeapi.NewImageServiceClient(client.Conn())
	if f := e.version(ctx); f != nil {
		return f
	}
	e.conditions(ctx)
	listed := e.list(ctx)
	e.inspect(ctx, listed)
	e.imageFilesystem(ctx)
	e.readCgroups(ctx, listed)
	return nil
}

// connectFindings are the findings for the problems of a connection.
var connectFindings = map[cri.Problem]struct {
	cause  Cause
	advice string
}{
	cri.NoSocket:     {RuntimeStopped, start + "; if it runs, " + rename},
	cri.NotSocket:    {RuntimeStopped, rename},
	cri.NoPermission: {NoPermission, "run this command as root"},
	cri.NotListening: {RuntimeStopped, start},
	cri.NotCRI:       {RuntimeStopped, "enable the runtime's CRI plugin, or " + rename},
	cri.NoConnection: {RuntimeHangs, restart},
	cri.NoAnswer:     {RuntimeHangs, restart},
	cri.NotGRPC:      {RuntimeHangs, restart},
	cri.Failing:      {RuntimeHangs, restart},
}

// version asks for the version of the runtime. If it does not answer, version
// returns why.
func (e *examination) version(ctx context.Context) *Finding {
	began := time.Now()
	version, err := e.client.Check(ctx)
	if err == nil {
		e.record(ItemCall{Method: "Version"}, time.Since(began), nil)
		e.report.Runtime = view.Printable(version.RuntimeName + " " + version.RuntimeVersion)
		return nil
	}
	var failed *cri.ConnectError
	if !errors.As(err, &failed) {
		return new(newFinding(RuntimeHangs, Problem, "the runtime at "+e.Endpoint+" did not answer before the examination ended", "", restart))
	}
	known := connectFindings[failed.Problem]
	evidence, summary := failed.Reason, failed.Reason
	if failed.Problem > cri.NoConnection { // the call was made
		e.record(ItemCall{Method: "Version"}, time.Since(began), failed.Err)
		summary = "Version: " + summary
		evidence += ": " + status.Convert(failed.Err).Message()
	}
	return new(newFinding(known.cause, Problem, fmt.Sprintf("%s: the runtime at %s: %s", known.cause, failed.Endpoint, summary), failed.Endpoint+": "+evidence, known.advice))
}

func (e *examination) conditions(ctx context.Context) {
	_ = e.call(ctx, ItemCall{Method: "Status"}, func(ctx context.Context) error {
		answer, err := e.runtime.Status(ctx, &runtimeapi.StatusRequest{})
		for _, c := range answer.GetStatus().GetConditions() {
			e.report.Conditions = append(e.report.Conditions, Condition{
				Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(),
			})
		}
		return err
	})
}
