package kubelet_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet"
)

// scene is a generator over a node, in a bubble: it relists at every full
// second and looks on in between.
type scene struct {
	t     *testing.T
	node  *node
	cache *recorder
	pleg  *kubelet.PLEG
	log   *lines
}

// stage runs a test in a bubble, with a node that is set up before the first
// relist.
func stage(t *testing.T, setUp func(*node), test func(s *scene)) {
	t.Helper()
	stageWith(t, 1000, setUp, test)
}

func stageWith(t *testing.T, capacity int, setUp func(*node), test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, node: newNode(), cache: newRecorder(), log: &lines{}}
		s.pleg = kubelet.New(s.log.logger(), s.node, make(chan *pleg.PodLifecycleEvent, capacity),
			&pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}, s.cache, clock.RealClock{})
		defer s.pleg.Stop()
		if setUp != nil {
			setUp(s.node)
		}
		s.pleg.Start()
		s.settle()
		// Between two relists from now on.
		s.wait(500 * time.Millisecond)
		test(s)
	})
}

// settle waits until the generator waits for time to pass.
func (s *scene) settle() { synctest.Wait() }

func (s *scene) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// relist waits for the next relist to end.
func (s *scene) relist() { s.wait(time.Second) }

// events returns what has been sent since it was called last.
func (s *scene) events() []string { return drain(s.pleg.Watch()) }

func drain(ch <-chan *pleg.PodLifecycleEvent) []string {
	var out []string
	for {
		select {
		case e := <-ch:
			out = append(out, words(e))
		default:
			return out
		}
	}
}

func words(e *pleg.PodLifecycleEvent) string {
	out := string(e.ID) + " " + strings.TrimPrefix(string(e.Type), "Container")
	if e.Data != nil {
		out += fmt.Sprintf(" %v", e.Data)
	}
	return out
}

// expect fails the test unless these events have been sent, in this order.
func (s *scene) expect(want ...string) {
	s.t.Helper()
	got := s.events()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		s.t.Errorf("events %q, want %q", got, want)
	}
}

// newerThan asks the cache in the background, and returns the answer once there
// is one.
func (s *scene) newerThan(uid types.UID, at time.Time) <-chan *kubecontainer.PodStatus {
	answer := make(chan *kubecontainer.PodStatus, 1)
	go func() {
		status, _ := s.cache.GetNewerThan(uid, at)
		answer <- status
	}()
	s.settle()
	return answer
}

// answered returns an answer that must be there by now.
func (s *scene) answered(answer <-chan *kubecontainer.PodStatus) *kubecontainer.PodStatus {
	s.t.Helper()
	select {
	case status := <-answer:
		return status
	default:
		s.t.Fatal("who waits for a newer status still waits")
		return nil
	}
}

// lines is a log kept in memory.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() klog.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, args)
	}, funcr.Options{Verbosity: 2})
}

// with returns the lines that contain a text.
func (l *lines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range l.text {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}
