package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// A server ignores an unknown field, and would send events that were not requested.
func TestFilterThatTheServerDoesNotKnow(t *testing.T) {
	client.AnOlderServerKnowsLess(t, 9)
	omit := pleg.SubscribeOptions{Filter: pleg.Filter{OmitSandboxes: true}}
	both := pleg.SubscribeOptions{Filter: pleg.Filter{OmitSandboxes: true, NetworkEvents: true}}
	for name, tc := range map[string]struct {
		options pleg.SubscribeOptions
		knows   []string
		lacks   string
	}{
		"nothing new":     {pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}}, nil, ""},
		"an old server":   {omit, nil, "omit_sandboxes"},
		"another field":   {omit, []string{"name", "network_events"}, "omit_sandboxes"},
		"a new server":    {omit, []string{"name", "omit_sandboxes"}, ""},
		"the first only":  {both, []string{"omit_sandboxes"}, "network_events"},
		"the second only": {both, []string{"network_events"}, "omit_sandboxes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clientOf(t, &hostile.Daemon{OnStatus: func(context.Context) (*plegv1.GetStatusResponse, error) {
					return &plegv1.GetStatusResponse{Version: "v0.0.1", WatchFields: tc.knows}, nil
				}})
				if s, err := c.Status(t.Context()); err != nil || s.Version != "v0.0.1" {
					t.Errorf("the status has the version %q, %v", s.Version, err)
				}
				sub, err := c.Subscribe(tc.options)
				kit.Must(t, err)
				defer sub.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = sub.Next(ctx)
				if refused := errors.Is(err, pleg.ErrInvalidOption); refused != (tc.lacks != "") {
					t.Errorf("Next = %v, lacks %q", err, tc.lacks)
				}
				if want := `watch: the daemon (version "v0.0.1") does not know ` + tc.lacks; tc.lacks != "" && err.Error() != want {
					t.Errorf("Next = %v, want %s", err, want)
				}
			})
		})
	}
}

// A daemon that does not return its version is not asked for more.
func TestVersionThatIsNotKnown(t *testing.T) {
	client.AnOlderServerKnowsLess(t, 9)
	c := clientOf(t, &hostile.Daemon{OnStatus: func(context.Context) (*plegv1.GetStatusResponse, error) {
		return nil, status.Error(codes.PermissionDenied, "no")
	}})
	var got error
	for _, err := range c.Watch(t.Context(), pleg.SubscribeOptions{Statuses: true}) {
		got = err
	}
	if got == nil || got.Error() != "watch: version of the server: rpc error: code = PermissionDenied desc = no" {
		t.Errorf("the watch got %v", got)
	}
}

// With a daemon that is too old for positions, a watch misses no event silently.
func TestListOfAServerWithoutPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clientOf(t, &hostile.Daemon{OnList: func(stream hostile.ListStream) error {
			return stream.Send(&plegv1.ListPodsResponse{Pod: &plegv1.Pod{Uid: "a"}})
		}})
		pods, position, err := c.Pods(t.Context())
		if err != nil || len(pods) != 1 || position == (pleg.Position{}) || position.Seq != 0 {
			t.Errorf("Pods = %+v, %v, %v, want a position of no pipeline, which causes a Gap", pods, position, err)
		}
	})
}

// A request to a daemon that is away is lost, and blocks nobody.
func TestRequestsWithoutADaemon(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.endServer()
		began := time.Now()
		for range 3 {
			f.client.RequestRelist("a")
			f.client.RequestReinspect("a")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the requests blocked for %v", took)
		}
		if ok, err := f.client.Healthy(); ok || !errors.Is(err, pleg.ErrNoDaemon) {
			t.Errorf("Healthy = %t, %v, want ErrNoDaemon", ok, err)
		}
		time.Sleep(time.Minute)
		f.startServer()
		time.Sleep(time.Minute)
		f.runtime.Set("a", "c1=running")
		f.client.RequestRelist("a")
		time.Sleep(100 * time.Millisecond) // before the next list
		if pods, _, err := f.client.Pods(t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("Pods = %+v, %v", pods, err)
		}
		f.client.Close()
		f.client.RequestRelist("a") // the goroutine of the request ends: see TestMain
	})
}

// Requests that are lost are logged once for each outage.
func TestLostRequestsAreLoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var logged kit.Log
		c, err := client.New("", client.Options{Dial: f.dial, Logger: logged.Logger()})
		kit.Must(t, err)
		t.Cleanup(func() { c.Close() })
		for outage := range 2 {
			f.endServer()
			for range 3 {
				c.RequestRelist("a")
				c.RequestReinspect("a")
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			logged.RequireLines(t, outage+1, `level=WARN msg="request was not sent" podUID=a err="request relist: the server is down"`)
			f.startServer()
			time.Sleep(time.Minute)
			for range 2 {
				c.RequestRelist("a")
				time.Sleep(time.Second)
			}
			logged.RequireLines(t, outage+1, "request was not sent")
		}
	})
}

// Requests are sent one at a time, in their order. What waits already is not sent twice.
func TestRequestsAreSentInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		began := time.Now()
		c := clientOf(t, &hostile.Daemon{OnRelist: func(r *plegv1.RequestRelistRequest) {
			sent = append(sent, fmt.Sprint(r.GetPodUid(), " ", r.GetReinspect(), " ", time.Since(began)))
			time.Sleep(time.Second)
		}})
		c.RequestRelist("first")
		synctest.Wait()
		for range 2 {
			c.RequestRelist("b")
			c.RequestReinspect("b")
			c.RequestRelist("a")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"first false 0s", "b false 1s", "b true 2s", "a false 3s"}; !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
	})
}

// The daemon takes ten requests a second: the client sends further requests again, and none is
// lost.
func TestManyRequestsAreSent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		const pods = 25
		kit.Fill(f.runtime, pods, "c=running")
		kit.Relist(1)
		got := f.pipe.Follow(t, pleg.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.PodSync}}}, nil)
		for range 1000 { // at ten a second these would take too long, but they merge
			f.client.RequestRelist("p0")
		}
		for _, uid := range kit.UIDs(pods) {
			f.client.RequestRelist(uid) // another request, which does not replace the next
			f.client.RequestReinspect(uid)
		}
		kit.Relist(20)
		if n := len(kit.ByPod(got.Events())); n != pods {
			t.Errorf("%d pods were inspected, want %d", n, pods)
		}
	})
}
