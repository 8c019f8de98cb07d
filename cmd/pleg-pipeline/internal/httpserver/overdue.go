package httpserver

import (
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// longList is the age at which a list in progress is mentioned.
const longList = 2 * time.Second

// relistDetail says what is wrong with the lists although the last successful one is
// recent enough; "" if nothing is. Only if pods may be named, it has the runtime's words.
func relistDetail(r pleg.RelistStatus, named bool) string {
	switch {
	case r.Failures > 0:
		text := fmt.Sprintf("%s failed since %v ago", number(r.Failures, "list has", "lists have"), rounded(time.Since(r.Failing)))
		if named {
			text += ": " + r.Err.Error()
		}
		return text
	case !r.Started.IsZero() && time.Since(r.Started) >= longList:
		text := fmt.Sprintf("a list has been running for %v", rounded(time.Since(r.Started)))
		if r.Call != nil {
			text += " (" + r.Call.String() + ")"
		}
		return text
	}
	return ""
}

// maxNamed is the number of waiting pods that a check names.
const maxNamed = 3

// waiting says how many pods wait for their inspection, or only since when if they must
// not be named. Those whose inspection is overdue come first.
func waiting(backlog []cache.Pending, overdue []pleg.Inspection, named bool) string {
	var pods []string
	var oldest time.Time
	add := func(since time.Time, format string, args ...any) {
		pods = append(pods, fmt.Sprintf(format, args...))
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	inFlight := make(map[pleg.PodUID]bool)
	for _, i := range overdue {
		inFlight[i.UID] = true
		age := rounded(time.Since(i.Started)).String()
		verb := "takes " + age + " so far"
		if i.Hung {
			verb = "hangs for " + age
		}
		call := ""
		if i.Call != nil {
			call = fmt.Sprintf(" in %v", i.Call)
		}
		add(i.Started, "%s %s%s", podName(i.Namespace, i.Name, i.UID), verb, call)
	}
	for _, p := range backlog {
		if !inFlight[p.UID] {
			add(p.Since, "%s waits for %v", podName(p.Pod.Namespace, p.Pod.Name, p.UID), rounded(time.Since(p.Since)))
		}
	}
	text := number(len(pods), "pod waits", "pods wait") + " for an inspection"
	if !named {
		return fmt.Sprintf("%s, one for %v", text, rounded(time.Since(oldest)))
	}
	return text + ": " + strings.Join(pods[:min(len(pods), maxNamed)], ", ")
}

// podName returns the UID alone if the name is not known.
func podName(namespace, name string, uid pleg.PodUID) string {
	if name == "" {
		return string(uid)
	}
	return fmt.Sprintf("%s/%s (%s)", namespace, name, uid)
}
