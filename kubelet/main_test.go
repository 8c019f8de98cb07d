package kubelet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet"
)

func TestMain(m *testing.M) {
	// The kubelet's metrics need registration before they count.
	metrics.Register()
	goleak.VerifyTestMain(m)
}

// fixture is a generator in a bubble. It relists at every full second; the test acts
// half a second later.
type fixture struct {
	t       *testing.T
	runtime *fakeRuntime
	cache   *recorder
	pleg    *kubelet.PLEG
	log     *logLines
	ctx     context.Context // of the generator
	stop    context.CancelFunc
}

// runFixture runs a test in a bubble. setUp prepares the runtime before the first
// relist.
func runFixture(t *testing.T, setUp func(*fakeRuntime), test func(f *fixture)) {
	t.Helper()
	runFixtureWith(t, kubelet.Options{}, 1000, setUp, test)
}

func runFixtureWith(t *testing.T, o kubelet.Options, capacity int, setUp func(*fakeRuntime), test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, runtime: newFakeRuntime(), cache: newRecorder(), log: &logLines{}}
		f.pleg = kubelet.NewWithOptions(o, f.runtime, make(chan *pleg.PodLifecycleEvent, capacity),
			&pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}, f.cache, clock.RealClock{})
		f.ctx, f.stop = context.WithCancel(klog.NewContext(t.Context(), f.log.logger()))
		defer f.wait(2 * time.Hour) // until the slowest inspection has ended
		defer f.stop()
		if setUp != nil {
			setUp(f.runtime)
		}
		f.start()
		f.settle()
		f.wait(500 * time.Millisecond)
		test(f)
	})
}

// start starts the generator with the log of the fixture.
func (f *fixture) start() { f.pleg.Start(f.ctx) }

// quiet returns the context of a test, without a log.
func quiet(t *testing.T) context.Context { return klog.NewContext(t.Context(), logr.Discard()) }

// settle waits until all goroutines of the generator are blocked.
func (f *fixture) settle() { synctest.Wait() }

func (f *fixture) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// relist waits for the end of the next relist.
func (f *fixture) relist() { f.wait(time.Second) }

// events returns the events of the generator since the last call.
func (f *fixture) events() []string { return drain(f.pleg.Watch()) }

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

// expect fails the test unless the generator has sent these events, in this order.
func (f *fixture) expect(want ...string) {
	f.t.Helper()
	got := f.events()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		f.t.Errorf("events %q, want %q", got, want)
	}
}

// newerThan calls GetNewerThan of the cache in the background. The channel gets the
// answer.
func (f *fixture) newerThan(uid types.UID, at time.Time) <-chan *kubecontainer.PodStatus {
	answer := make(chan *kubecontainer.PodStatus, 1)
	go func() {
		status, _ := f.cache.newerThan(uid, at)
		answer <- status
	}()
	f.settle()
	return answer
}

// answered returns the answer, which must have arrived.
func (f *fixture) answered(answer <-chan *kubecontainer.PodStatus) *kubecontainer.PodStatus {
	f.t.Helper()
	select {
	case status := <-answer:
		return status
	default:
		f.t.Fatal("GetNewerThan has not returned")
		return nil
	}
}

// logLines is a log in memory.
type logLines struct {
	mu   sync.Mutex
	text []string
}

func (l *logLines) logger() klog.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, args)
	}, funcr.Options{Verbosity: 2})
}

// containing returns the lines that contain a text.
func (l *logLines) containing(text string) []string {
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
