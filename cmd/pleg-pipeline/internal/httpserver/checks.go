package httpserver

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
)

// check is one part of a health check. run returns a detail for people, or why the
// check fails.
type check struct {
	name string
	run  func(*http.Request) (string, error)
}

// checks is the handler of a health path, which succeeds if all checks do.
type checks struct {
	path string
	all  []check
}

// ServeHTTP answers "ok". With ?verbose, or if a check fails, it answers with one line
// per check.
func (c checks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var lines strings.Builder
	failed := false
	for _, check := range c.all {
		detail, err := check.run(r)
		if err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", check.name, err)
			continue
		}
		if detail != "" {
			detail = ": " + detail
		}
		fmt.Fprintf(&lines, "[+]%s ok%s\n", check.name, detail)
	}
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-cache, private")
	switch {
	case failed:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "%s%s check failed\n", lines.String(), c.path)
	case r.URL.Query().Has("verbose"):
		fmt.Fprintf(w, "%s%s check passed\n", lines.String(), c.path)
	default:
		fmt.Fprint(w, "ok")
	}
}

// list is the check that the kubelet has too: the last successful list is recent.
func (o *Options) list() check {
	return check{"pleg", func(*http.Request) (string, error) {
		healthy, err := o.Pipeline.Healthy()
		switch {
		case !healthy:
			return "", err
		case err != nil:
			return err.Error(), nil
		}
		return "", nil
	}}
}

// inspections fails if too many pods have waited too long for their inspection. A few
// hung inspections do not make the node unready, but the check names their pods.
func (o *Options) inspections() check {
	return check{"inspections", func(r *http.Request) (string, error) {
		backlog := o.Pipeline.Cache().Pending()
		if len(backlog) == 0 {
			return "", nil
		}
		late := 0
		for late < len(backlog) && time.Since(backlog[late].Since) > o.BacklogAfter {
			late++
		}
		text := number(len(backlog), "pod waits", "pods wait") + " for the inspector" + o.oldest(backlog, r)
		if late > o.MaxBacklog {
			return "", fmt.Errorf("%d of %s; at most %d may wait for more than %v", late, text, o.MaxBacklog, o.BacklogAfter)
		}
		return text, nil
	}}
}

// oldest names the pods that have waited longest, unless pods are hidden.
func (o *Options) oldest(backlog []cache.Pending, r *http.Request) string {
	if o.hidden(r) != nil {
		return fmt.Sprintf(", one for %v", waited(backlog[0]))
	}
	const most = 3
	var text strings.Builder
	for _, p := range backlog[:min(len(backlog), most)] {
		name := string(p.UID)
		if p.Status != nil && p.Status.Name != "" {
			name = fmt.Sprintf("%s/%s (%s)", p.Status.Namespace, p.Status.Name, p.UID)
		}
		fmt.Fprintf(&text, ", %s for %v", name, waited(p))
	}
	return text.String()
}

// quarantine names the quarantined pods. It never fails: these pods delay no other
// pods, and the check inspections counts them too.
func (o *Options) quarantine() check {
	return check{"quarantine", func(r *http.Request) (string, error) {
		pods := o.Pipeline.Quarantined()
		if len(pods) == 0 {
			return "", nil
		}
		const most = 10
		var text strings.Builder
		text.WriteString(number(len(pods), "pod is quarantined", "pods are quarantined"))
		if o.hidden(r) == nil {
			for _, p := range pods[:min(len(pods), most)] {
				fmt.Fprintf(&text, ", %s/%s (%s) for %v, %d hung inspections, next in %v", p.Namespace, p.Name, p.UID,
					rounded(time.Since(p.Since)), p.Hung, rounded(max(0, time.Until(p.NextTry))))
			}
		}
		return text.String(), nil
	}}
}

// number returns n with a noun.
func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func waited(p cache.Pending) time.Duration {
	return rounded(time.Since(p.Since))
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
