package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

const (
	// maxBacklog is the number of pods that may wait for their inspection for longer than
	// backlogAfter before /readyz fails. It allows for some whose inspections hang: they do
	// not make the node unready.
	maxBacklog = 10
	// backlogAfter exceeds the time that a relist and a burst of inspections take on a healthy
	// runtime.
	backlogAfter = 30 * time.Second
)

// HealthHandler returns the handler of /livez and /readyz alone.
func HealthHandler(o Options) http.Handler {
	mux := http.NewServeMux()
	o.addHealth(mux)
	return mux
}

func (o *Options) addHealth(mux *http.ServeMux) {
	ping := check{"ping", func(*http.Request) (string, error) { return "", nil }}
	ready := []check{ping, o.list(), o.inspections(), o.verdict()}
	for _, part := range o.Parts {
		ready = append(ready, o.part(part))
	}
	mux.Handle("GET /livez", checks{"livez", []check{ping}})
	mux.Handle("GET /readyz", limitRate(checks{"readyz", ready}))
}

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
		switch {
		case err != nil:
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", check.name, view.Printable(err.Error()))
		case detail != "": // not "ok": a verdict that fails no check may be bad
			fmt.Fprintf(&lines, "[+]%s: %s\n", check.name, view.Printable(detail))
		default:
			fmt.Fprintf(&lines, "[+]%s ok\n", check.name)
		}
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

// list is the kubelet's check: the last successful list is recent. Its
// errors may name pods and quote the runtime.
func (o *Options) list() check {
	return check{"pleg", func(r *http.Request) (string, error) {
		status, _ := o.Pipeline.Status(r.Context())
		switch {
		case status.Healthy:
			return "", nil
		case o.hidden(r) == nil:
			return "", errors.New(verdict.Plain(status.Err))
		case status.Relist.Success.IsZero():
			return "", errors.New("no list has succeeded yet")
		}
		return "", fmt.Errorf("the last successful list began %v ago, %s", rounded(time.Since(status.Relist.Success)), waiting(status.Waiting))
	}}
}

// inspections fails if too many pods have waited too long for their inspection. A few
// hung inspections do not make the node unready, but the verdict names their pods.
func (o *Options) inspections() check {
	return check{"inspections", func(*http.Request) (string, error) {
		backlog := o.Pipeline.Cache().Pending()
		late := 0
		for late < len(backlog) && time.Since(backlog[late].Since) > backlogAfter {
			late++
		}
		if late > maxBacklog {
			return "", fmt.Errorf("%d of %s; at most %d may wait for more than %v", late, waiting(len(backlog)), maxBacklog, backlogAfter)
		}
		return "", nil
	}}
}

// waiting says how many pods wait.
func waiting(pods int) string {
	if pods == 1 {
		return "1 pod waits for an inspection"
	}
	return fmt.Sprintf("%d pods wait for an inspection", pods)
}

// verdict returns the problem, its beginning and the pods. Clients that must not see pods get only
// the cause and the age. It never fails.
func (o *Options) verdict() check {
	return check{"verdict", func(r *http.Request) (string, error) {
		status, _ := o.Pipeline.Status(r.Context())
		v := verdict.Of(status)
		if o.hidden(r) != nil {
			return v.Anonymous(), nil
		}
		return v.Full(), nil
	}}
}

// part returns the line of a part. It never fails.
func (o *Options) part(p Part) check {
	return check{p.Name, func(r *http.Request) (string, error) {
		if o.hidden(r) != nil {
			return "", nil
		}
		return p.State(), nil
	}}
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
