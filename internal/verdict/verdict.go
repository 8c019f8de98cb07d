// Package verdict decides what is wrong with the runtime of a node: the cause, its beginning, the
// call that shows it, and what to do. Every output about health shows this verdict, so that all
// name the same cause and the same age.
package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Severity ranks a finding.
type Severity string

// The severities.
const (
	OK Severity = "ok"
	// Warning is a cause that may make PLEG unhealthy.
	Warning Severity = "warning"
	// Problem is a cause that makes PLEG unhealthy, now or soon.
	Problem Severity = "problem"
)

// rank orders severities, the worst first.
var rank = map[Severity]int{Problem: 0, Warning: 1, OK: 2}

// Verdict lists the problems of one node.
type Verdict struct {
	// Severity is the severity of the first finding, or [OK] without findings.
	Severity Severity `json:"severity"`
	// Text is the verdict in one line, such as "PROBLEM: shop/web-0 hangs since 17:36 (6m, 9
	// attempts) in ContainerStatus of nginx". It can name pods. Times are in the time zone of this
	// process. A program in another time zone makes the line from the findings.
	Text string `json:"text"`
	// Findings are the known causes that fit, the worst first.
	Findings []Finding `json:"findings"`
	// Good is the text without findings.
	Good string `json:"-"`
}

// Finding is a known cause that fits.
type Finding struct {
	Cause    Cause    `json:"cause"`
	Severity Severity `json:"severity"`
	// Summary names the culprit in one line: Subject, What, since when, Detail.
	Summary string `json:"summary"`
	// Evidence is everything that is known, Advice what to do.
	Evidence string `json:"evidence"`
	Advice   string `json:"advice"`

	// Subject names the pod or process in trouble, such as "shop/web-0", What the trouble, such as "hangs",
	// Detail where or why, such as " in ContainerStatus of nginx". Rest describes the other pods, such as
	// "; the other 109 pods answer". All are empty if only the summary is known.
	Subject string `json:"subject,omitempty"`
	What    string `json:"what,omitempty"`
	Detail  string `json:"detail,omitempty"`
	Rest    string `json:"rest,omitempty"`
	// Since is the time at which the trouble began: the start of the first attempt. Missing if that
	// is not known. AtLeast is true if nobody watched before, so that the trouble may be older.
	// Attempts is the number of attempts since then; 0 if they are not counted.
	Since    time.Time `json:"since,omitzero"`
	AtLeast  bool      `json:"atLeast,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	// NextTry is the time at which the next attempt begins, if none is running.
	NextTry time.Time `json:"nextTry,omitzero"`

	// The pod, the container and the call; each empty if not known. Pods is the number of pods
	// with this trouble.
	Pod       string      `json:"pod,omitempty"`
	PodUID    pleg.PodUID `json:"podUID,omitempty"`
	Container string      `json:"container,omitempty"`
	Call      string      `json:"call,omitempty"`
	Pods      int         `json:"pods,omitempty"`
}

// Error is a finding as the error of a call.
type Error struct{ Finding }

// Error says what is wrong, and what to do.
func (e Error) Error() string { return e.Summary + "; " + e.Advice }

// New returns the verdict of findings. good is its text without findings.
func New(findings []Finding, good string) Verdict {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	v := Verdict{Severity: OK, Text: "OK: " + good, Findings: append([]Finding{}, findings...), Good: good}
	if len(findings) > 0 {
		v.Severity = findings[0].Severity
		v.Text = strings.ToUpper(string(v.Severity)) + ": " + findings[0].Summary
	}
	return v
}

// Full returns the text with the evidence and the other findings.
func (v *Verdict) Full() string {
	parts := []string{v.Text}
	for n, f := range v.Findings {
		if n > 0 {
			parts = append(parts, "also "+string(f.Severity)+": "+f.Summary)
		}
		if f.Evidence != f.Summary {
			parts = append(parts, f.Evidence)
		}
	}
	return strings.Join(parts, "; ")
}

// Brief returns the text with the other problems.
func (v *Verdict) Brief() string {
	parts := []string{v.Text}
	for _, f := range v.Findings[min(1, len(v.Findings)):] {
		if f.Severity == Problem {
			parts = append(parts, "also "+f.Summary)
		}
	}
	return strings.Join(parts, "; ")
}

// Lasting returns the text without ages and counts, so that it stays the same for as long as the
// trouble does.
func (v *Verdict) Lasting() string {
	if v.Severity == OK {
		return v.Text
	}
	return strings.ToUpper(string(v.Severity)) + ": " + v.Findings[0].lasting()
}

func (f *Finding) lasting() string {
	if f.What == "" {
		return f.Summary
	}
	text := strings.TrimSpace(f.Subject + " " + f.What)
	if !f.Since.IsZero() && !f.AtLeast {
		text += " since " + clock(f.Since, time.Now())
	}
	return text + f.Detail
}

// Anonymous returns the first cause and its age. It names no pod and quotes no text of the runtime.
func (v *Verdict) Anonymous() string {
	if v.Severity == OK {
		return v.Text
	}
	f := v.Findings[0]
	return strings.TrimSpace(strings.ToUpper(string(v.Severity)) + ": " + string(f.Cause) + " " + f.age(time.Now()))
}

// Complaint names the problem without its subject, and the next try.
func (f *Finding) Complaint(now time.Time) string {
	text := f.text(now)
	if !f.NextTry.IsZero() {
		text += ", next try in " + Span(f.NextTry.Sub(now))
	}
	return text
}

func (f *Finding) text(now time.Time) string {
	return strings.TrimSpace(f.What+" "+f.age(now)) + f.Detail
}

// Completed returns a finding with its summary, its advice, and evidence.
func (f Finding) Completed(now time.Time) Finding {
	if f.What != "" {
		f.Summary = strings.TrimSpace(f.Subject+" "+f.text(now)) + f.Rest
	}
	f.Evidence = cmp.Or(f.Evidence, f.Summary)
	f.Advice = cmp.Or(f.Advice, f.Cause.Advice())
	return f
}

// age describes the beginning and the number of attempts, such as "since 17:36 (6m, 9 attempts)";
// "" if the beginning is not known.
func (f *Finding) age(now time.Time) string {
	switch past := now.Sub(f.Since); {
	case f.Since.IsZero():
		return ""
	case f.AtLeast:
		return "for at least " + Span(past)
	case f.Attempts > 1:
		return fmt.Sprintf("since %s (%s, %s)", clock(f.Since, now), Span(past), Count(f.Attempts, "attempt"))
	default:
		return fmt.Sprintf("since %s (%s)", clock(f.Since, now), Span(past))
	}
}

// clock returns the time of day, with the date if that may not be today's.
func clock(at, now time.Time) string {
	if now.Sub(at) >= 20*time.Hour {
		return at.Local().Format("Jan 2 15:04")
	}
	return at.Local().Format("15:04")
}

// Span returns a duration in one unit, as kubectl does.
func Span(d time.Duration) string {
	switch d = max(0, d); {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Count returns n with a noun.
func Count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
