package wire

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// FromPipelineStatus returns the message of the status of a pipeline.
func FromPipelineStatus(s pleg.Status) *plegv1.PipelineStatus {
	n := nodestate.Of(s.Details)
	m := &plegv1.PipelineStatus{
		At: FromTime(s.At), Healthy: s.Healthy, Error: ErrorText(s.Err), Degraded: ErrorText(s.Degraded), Relist: fromRelist(s.Relist),
		Inspectors: uint32(s.Inspectors), Width: uint32(s.Inspectors), InFlight: uint32(s.InFlight), Waiting: uint32(s.Waiting),
		InspectionTook: fromDuration(s.InspectionTook), Endpoint: Text(s.Endpoint),
		UnhealthySince: FromTime(n.Since.Unhealthy), DegradedSince: FromTime(n.Since.Degraded), SlowSince: FromTime(n.Since.Slow),
		Runtime: fromProcess(n.Process),
	}
	for _, i := range s.Overdue {
		m.Overdue = append(m.Overdue, &plegv1.Inspection{
			PodUid: Text(string(i.UID)), PodNamespace: Text(i.Namespace), PodName: Text(i.Name),
			Started: FromTime(i.Started), Hung: i.Hung, Call: fromCall(i.Call),
		})
	}
	for _, q := range s.Quarantined {
		m.Quarantined = append(m.Quarantined, &plegv1.QuarantinedPod{
			Uid: Text(string(q.UID)), Namespace: Text(q.Namespace), Name: Text(q.Name),
			Since: FromTime(q.Since), Hung: uint32(q.Hung), NextTry: FromTime(q.NextTry), Error: ErrorText(q.Err),
			Call: fromCall(q.Call),
		})
	}
	for _, f := range s.Failed {
		m.Failed = append(m.Failed, &plegv1.FailedPod{
			Uid: Text(string(f.UID)), Namespace: Text(f.Namespace), Name: Text(f.Name), Since: FromTime(f.Since), Error: ErrorText(f.Err),
		})
	}
	for _, c := range s.Contradictions {
		m.Contradictions = append(m.Contradictions, &plegv1.Contradiction{
			PodUid: Text(string(c.UID)), PodNamespace: Text(c.Namespace), PodName: Text(c.Name),
			Id: Text(string(c.Container)), Container: Text(c.ContainerName), Sandbox: c.Sandbox,
			Listed: states[c.Listed], Status: states[c.Status], Missing: c.Missing, Since: FromTime(c.Since),
		})
	}
	for _, p := range n.Stuck {
		m.Stuck = append(m.Stuck, &plegv1.StuckPod{
			PodUid: Text(string(p.UID)), PodNamespace: Text(p.Namespace), PodName: Text(p.Name), Since: FromTime(p.Since),
			Shim: fromProcess(p.Shim), Container: Text(p.Container), Id: Text(string(p.ID)),
		})
	}
	for _, u := range n.Unread {
		m.Unread = append(m.Unread, &plegv1.UnreadClient{Since: FromTime(u.Since), Client: fromProcess(u.Client), Bytes: uint64(u.Bytes)})
	}
	if d := n.Disk; d != nil {
		m.Disk = &plegv1.Disk{Since: FromTime(d.Since), Path: Text(d.Path), Used: d.Used, Inodes: d.Inodes}
	}
	for _, t := range s.Troubles {
		m.Troubles = append(m.Troubles, &plegv1.Trouble{
			Cause: Text(t.Cause), Problem: t.Problem, Since: FromTime(t.Since), Subject: Text(t.Subject), What: Text(t.What), Detail: Text(t.Detail),
		})
	}
	return m
}

func fromProcess(p *nodestate.Process) *plegv1.Process {
	if p == nil {
		return nil
	}
	return &plegv1.Process{Pid: uint32(p.PID), Name: Text(p.Name), State: Text(p.State)}
}

func fromRelist(r pleg.RelistStatus) *plegv1.RelistStatus {
	return &plegv1.RelistStatus{
		Success: FromTime(r.Success), Took: fromDuration(r.Took), Started: FromTime(r.Started), Call: fromCall(r.Call),
		Failing: FromTime(r.Failing), Failures: uint32(r.Failures), Error: ErrorText(r.Err),
		Period: fromDuration(r.Period), Pods: uint32(r.Pods), Unavailable: errors.Is(r.Err, pleg.ErrUnavailable), FailedAfter: fromDuration(r.FailedAfter),
		Longest: fromDuration(r.Longest),
	}
}

func fromCall(c *pleg.Call) *plegv1.Call {
	if c == nil {
		return nil
	}
	return &plegv1.Call{
		Method: Text(c.Method), PodUid: Text(string(c.PodUID)), Id: Text(string(c.ID)), Container: Text(c.Container),
		Started: FromTime(c.Started),
	}
}

// ToPipelineStatus returns the status of a message.
func ToPipelineStatus(m *plegv1.PipelineStatus) pleg.Status {
	s := pleg.Status{
		At: ToTime(m.GetAt()), Healthy: m.GetHealthy(), Err: toError(m.GetError()), Degraded: toDegraded(m.GetDegraded()), Relist: toRelist(m.GetRelist()),
		Inspectors: int(m.GetInspectors()), InFlight: int(m.GetInFlight()), Waiting: int(m.GetWaiting()),
		InspectionTook: m.GetInspectionTook().AsDuration(), Endpoint: m.GetEndpoint(),
	}
	n := nodestate.State{
		Since:   nodestate.Since{Unhealthy: ToTime(m.GetUnhealthySince()), Degraded: ToTime(m.GetDegradedSince()), Slow: ToTime(m.GetSlowSince())},
		Process: toProcess(m.GetRuntime()),
	}
	for _, i := range m.GetOverdue() {
		s.Overdue = append(s.Overdue, pleg.Inspection{
			UID: pleg.PodUID(i.GetPodUid()), Namespace: i.GetPodNamespace(), Name: i.GetPodName(),
			Started: ToTime(i.GetStarted()), Hung: i.GetHung(), Call: toCall(i.GetCall()),
		})
	}
	for _, q := range m.GetQuarantined() {
		s.Quarantined = append(s.Quarantined, pleg.Quarantined{
			UID: pleg.PodUID(q.GetUid()), Namespace: q.GetNamespace(), Name: q.GetName(),
			Since: ToTime(q.GetSince()), Hung: int(q.GetHung()), NextTry: ToTime(q.GetNextTry()), Err: toError(q.GetError()),
			Call: toCall(q.GetCall()),
		})
	}
	for _, f := range m.GetFailed() {
		s.Failed = append(s.Failed, pleg.Failed{
			UID: pleg.PodUID(f.GetUid()), Namespace: f.GetNamespace(), Name: f.GetName(), Since: ToTime(f.GetSince()), Err: toError(f.GetError()),
		})
	}
	for _, c := range m.GetContradictions() {
		s.Contradictions = append(s.Contradictions, pleg.Contradiction{
			UID: pleg.PodUID(c.GetPodUid()), Namespace: c.GetPodNamespace(), Name: c.GetPodName(),
			Container: pleg.ContainerID(c.GetId()), ContainerName: c.GetContainer(), Sandbox: c.GetSandbox(),
			Listed: toState(c.GetListed()), Status: toState(c.GetStatus()), Missing: c.GetMissing(), Since: ToTime(c.GetSince()),
		})
	}
	for _, p := range m.GetStuck() {
		n.Stuck = append(n.Stuck, nodestate.Stuck{
			UID: pleg.PodUID(p.GetPodUid()), Namespace: p.GetPodNamespace(), Name: p.GetPodName(), Since: ToTime(p.GetSince()),
			Shim: toProcess(p.GetShim()), Container: p.GetContainer(), ID: pleg.ContainerID(p.GetId()),
		})
	}
	for _, u := range m.GetUnread() {
		n.Unread = append(n.Unread, nodestate.Unread{Since: ToTime(u.GetSince()), Client: toProcess(u.GetClient()), Bytes: int(u.GetBytes())})
	}
	if d := m.GetDisk(); d != nil {
		n.Disk = &nodestate.Disk{Since: ToTime(d.GetSince()), Path: d.GetPath(), Used: d.GetUsed(), Inodes: d.GetInodes()}
	}
	for _, t := range m.GetTroubles() {
		s.Troubles = append(s.Troubles, pleg.Trouble{
			Cause: t.GetCause(), Problem: t.GetProblem(), Since: ToTime(t.GetSince()), Subject: t.GetSubject(), What: t.GetWhat(), Detail: t.GetDetail(),
		})
	}
	if n.Process != nil || n.Stuck != nil || n.Unread != nil || n.Disk != nil || n.Since != (nodestate.Since{}) {
		s.Details = n
	}
	return s
}

func toProcess(m *plegv1.Process) *nodestate.Process {
	if m == nil {
		return nil
	}
	return &nodestate.Process{PID: int(m.GetPid()), Name: m.GetName(), State: m.GetState()}
}

func toRelist(m *plegv1.RelistStatus) pleg.RelistStatus {
	err := toError(m.GetError())
	if err != nil && m.GetUnavailable() {
		err = known{err, pleg.ErrUnavailable}
	}
	return pleg.RelistStatus{
		Success: ToTime(m.GetSuccess()), Took: m.GetTook().AsDuration(), Started: ToTime(m.GetStarted()), Call: toCall(m.GetCall()),
		Failing: ToTime(m.GetFailing()), Failures: int(m.GetFailures()), Err: err,
		Period: m.GetPeriod().AsDuration(), Pods: int(m.GetPods()), FailedAfter: m.GetFailedAfter().AsDuration(),
		Longest: m.GetLongest().AsDuration(),
	}
}

// toDegraded returns the error with this text. It wraps [pleg.ErrListTooLarge] if the text begins with
// that error's.
func toDegraded(text string) error {
	if strings.HasPrefix(text, pleg.ErrListTooLarge.Error()) {
		return known{toError(text), pleg.ErrListTooLarge}
	}
	return toError(text)
}

// known represents an error of another process that wraps an error of package pleg; it has the text
// of that error.
type known struct {
	error
	is error
}

// Unwrap implements the interface of package errors.
func (e known) Unwrap() error { return e.is }

func toCall(m *plegv1.Call) *pleg.Call {
	if m == nil {
		return nil
	}
	return &pleg.Call{
		Method: m.GetMethod(), PodUID: pleg.PodUID(m.GetPodUid()), ID: pleg.ContainerID(m.GetId()), Container: m.GetContainer(),
		Started: ToTime(m.GetStarted()),
	}
}

// ErrorText returns the text of an error as valid UTF-8; "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return Text(err.Error())
}

func toError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// fromDuration returns nil for 0.
func fromDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
