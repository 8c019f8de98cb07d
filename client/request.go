package client

import (
	"context"
	"slices"
	"sync"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// requests are the requests that wait to be sent to the daemon. A goroutine sends them, one at a
// time, while there are any.
type requests struct {
	mu      sync.Mutex
	waiting []request // distinct
	sending bool
	lost    bool // the last one was lost, which is logged once; only the goroutine that sends reads it
}

type request struct {
	uid       pleg.PodUID
	reinspect bool
}

// RequestRelist makes the daemon list the pod at once, and inspect it if it changed. It does not block:
// the request is sent in the background, requests for one pod merge, and the daemon takes 10 a second
// of all clients. If the daemon is away, the request is lost, and the first that is lost is logged:
// when the daemon is back, it lists every pod.
func (c *Client) RequestRelist(uid pleg.PodUID) { c.request(request{uid: uid}) }

// RequestReinspect makes the daemon inspect the pod after its next list of all pods, whether or not
// the pod changed; if it did not, subscribers get a PodSync. It does not block, as
// [Client.RequestRelist].
func (c *Client) RequestReinspect(uid pleg.PodUID) { c.request(request{uid, true}) }

func (c *Client) request(r request) {
	q := &c.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.waiting, r) {
		return
	}
	q.waiting = append(q.waiting, r)
	if !q.sending {
		q.sending = true
		go c.sendRequests() // ends once no request waits; Close ends its call
	}
}

func (c *Client) sendRequests() {
	for {
		r, ok := c.requests.next()
		if !ok {
			return
		}
		_, err := c.calls.pleg.RequestRelist(context.Background(), &plegv1.RequestRelistRequest{PodUid: string(r.uid), Reinspect: r.reinspect})
		if err != nil && !c.requests.lost {
			c.options.Logger.Warn("request was not sent", "podUID", r.uid, "err", c.calls.callError("request relist", err))
		}
		c.requests.lost = err != nil
	}
}

// next takes a request; ok is false, and the sending has ended, if there is none.
func (q *requests) next() (r request, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting, q.sending = nil, false
		return r, false
	}
	r, q.waiting = q.waiting[0], q.waiting[1:]
	return r, true
}
