// Package httpserver serves a pipeline over HTTP.
//
//	/metrics     Prometheus metrics
//	/livez       200 while the process serves; independent of the runtime, because
//	             a restart of this process would not repair the runtime
//	/readyz      200 while the list of pods is fresh and the inspections keep up,
//	             otherwise 503
//	/            a page that shows all of this in a browser
//	/stages      the figures of each stage
//	/hour        figures of the last hour
//	/pods        the state of every pod, as one JSON object
//	/pods/{uid}  the state of one pod
//	/containers  the pod of a container (/containers/{id}), a process or a cgroup
//	/events      server-sent events, with Last-Event-ID to resume
//
// Both health paths answer "ok", or with ?verbose one line per check, in the format of
// the Kubernetes API server.
//
// # Bounds
//
// Connections, event streams, headers and the time of a request are limited. Above a
// limit the server answers with 503 and names the limit, except for the health paths. A
// client that does not read its event stream affects nobody else: it is a subscriber of
// the pipeline, and loses its connection after half a minute.
package httpserver

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

const (
	// maxBacklog is the number of pods that may wait for their inspection for longer than
	// backlogAfter before /readyz fails. It allows for some whose inspections hang: they do
	// not make the node unready.
	maxBacklog = 10
	// backlogAfter is longer than a relist and the inspections of a burst take on a healthy
	// runtime.
	backlogAfter = 30 * time.Second
	// DefaultMaxStreams is the greatest number of event streams at the same time.
	DefaultMaxStreams = 64
	// MaxStreams is the greatest number that can be asked for: half of the connections,
	// so that there is room for other requests.
	MaxStreams = maxConnections / 2
	// maxRequests is the greatest number of requests for metrics, and for pods, at
	// the same time. Their answers can be large.
	maxRequests = 16
	// maxWait is how long one more waits for its turn.
	maxWait = 5 * time.Second
)

// Options configure a [Handler]. Those without a default are required.
type Options struct {
	// Pipeline is the pipeline to serve.
	Pipeline *pipeline.Pipeline
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
	// MaxStreams is the greatest number of clients of /events, Buffer the number of
	// events that can wait for each. If zero, [DefaultMaxStreams] and that of the
	// pipeline.
	MaxStreams int
	Buffer     int
	// HidePods returns an error if the answer to a request must not name pods:
	// [Access.HidePods]. It is called for each request, and during event streams,
	// because the configuration can change. If nil, answers can name pods.
	HidePods func(*http.Request) error
	// Logger logs errors of the Gatherer.
	Logger *slog.Logger
	// Hour has the figures of the last hour. If nil, there are none.
	Hour *Hour
	// Node is the name of the node, and Runtime returns the name and version of its runtime, or
	// its address. Each may be missing.
	Node    string
	Runtime func() string
	// Parts are what runs beside the pipeline. They have lines in /readyz?verbose, but do not
	// make the node unready.
	Parts []Part
}

// Part is what runs beside the pipeline, such as a publisher.
type Part struct {
	Name string
	// State returns a line for people. It can name pods and servers, so it is shown only to
	// clients that may see pods.
	State func() string
}

// Handler returns the handler of all paths.
func Handler(o Options) http.Handler {
	ping := check{"ping", func(*http.Request) (string, error) { return "", nil }}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", limit(maxRequests, maxWait, "requests", newMetrics(o.Gatherer, o.Logger)))
	mux.Handle("GET /livez", checks{"livez", []check{ping}})
	ready := []check{ping, o.list(), o.inspections(), o.verdict()}
	for _, part := range o.Parts {
		ready = append(ready, o.part(part))
	}
	mux.Handle("GET /readyz", checks{"readyz", ready})
	pods := pods{o.Pipeline}
	podMux := http.NewServeMux()
	podMux.Handle("GET /pods", newShared(func(r *http.Request) string { return r.URL.RawQuery }, http.HandlerFunc(pods.all)))
	podMux.HandleFunc("GET /pods/{uid...}", pods.one)
	podMux.Handle("GET /stages", stages{&o})
	podMux.Handle("GET /hour", cmp.Or(o.Hour, NewHour(o.Pipeline, o.Gatherer)))
	guarded := limit(maxRequests, maxWait, "requests", o.guard(podMux))
	mux.Handle("GET /pods", guarded)
	mux.Handle("GET /pods/{uid...}", guarded)
	mux.Handle("GET /events", o.guard(limit(cmp.Or(o.MaxStreams, DefaultMaxStreams), 0, "event streams", &events{pipe: o.Pipeline, buffer: o.Buffer, hidden: o.hidden})))
	mux.Handle("GET /stages", guarded)
	mux.Handle("GET /hour", guarded)
	lookups := o.guard(limit(maxRequests, maxWait, "lookups", containers{o.Pipeline}))
	mux.Handle("GET /containers", lookups)
	mux.Handle("GET /containers/{id}", lookups)
	files := o.guard(limit(maxPageRequests, maxWait, "requests", http.HandlerFunc(servePage)))
	mux.Handle("GET /{$}", files)
	mux.Handle("GET /page/{file}", files)
	return pasted(mux)
}

// pasted makes an id with slashes, such as containerd://ID, one part of the path. The mux would
// take the slashes for a mistake and redirect.
func pasted(mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := strings.CutPrefix(r.URL.Path, "/containers/"); ok && strings.Contains(id, "/") {
			u := *r.URL
			u.RawPath = "/containers/" + url.PathEscape(id)
			r = r.WithContext(r.Context()) // a copy
			r.URL = &u
		}
		mux.ServeHTTP(w, r)
	})
}

// hidden returns an error if the client must not see pods.
func (o *Options) hidden(r *http.Request) error {
	if isRebound(r) {
		return fmt.Errorf("pods are not served under the host name %q: use localhost or an IP address", r.Host)
	}
	if o.HidePods == nil {
		return nil
	}
	return o.HidePods(r)
}

// guard refuses requests of clients that must not see pods. Every handler that names pods
// is behind it.
func (o *Options) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if err := cmp.Or(o.hidden(r), fromElsewhere(r)); err != nil {
			writeRefusal(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// fromElsewhere returns an error if a page of another site makes the request: it could not
// read the answer, but take all places. Following a link is another matter.
func fromElsewhere(r *http.Request) error {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return errors.New("pods are not served to pages of other sites")
	}
	return nil
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
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", check.name, err)
		case detail != "": // not "ok": a verdict that fails no check may be bad
			fmt.Fprintf(&lines, "[+]%s: %s\n", check.name, detail)
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

// list is the check that the kubelet has too: the last successful list is recent. Its
// errors may name pods and quote the runtime.
func (o *Options) list() check {
	return check{"pleg", func(r *http.Request) (string, error) {
		status := o.Pipeline.Status()
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

// verdict says what is wrong, since when, and with which pods, but only the cause and the age
// to clients that must not see pods. It never fails.
func (o *Options) verdict() check {
	return check{"verdict", func(r *http.Request) (string, error) {
		v := verdict.Of(o.Pipeline.Status())
		if o.hidden(r) != nil {
			return v.Anonymous(), nil
		}
		return view.Printable(v.Full()), nil
	}}
}

// part says how a part goes. It never fails.
func (o *Options) part(p Part) check {
	return check{p.Name, func(r *http.Request) (string, error) {
		if o.hidden(r) != nil {
			return "", nil
		}
		return p.State(), nil
	}}
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
