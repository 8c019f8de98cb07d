package browser_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// browser is the Chromium that all tests share.
var browser context.Context

func TestMain(m *testing.M) {
	var stop func()
	var err error
	if browser, stop, err = startBrowser(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// startBrowser starts a headless Chromium and returns a context for its tabs. It ends with
// stop.
func startBrowser(ctx context.Context) (tabs context.Context, stop func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("%w: install Debian's package chromium", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, // as root there is no sandbox
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("enable-precise-memory-info", true), chromedp.Flag("js-flags", "--expose-gc"),
	)
	allocator, cancelAllocator := chromedp.NewExecAllocator(ctx, options...)
	tabs, cancelBrowser := chromedp.NewContext(allocator)
	stop = func() { cancelBrowser(); cancelAllocator() }
	if err := chromedp.Do(tabs); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start chromium: %w", err)
	}
	return tabs, stop, nil
}

// node is a simulated node, the program on it, and its page in a tab.
type node struct {
	*testing.T
	runtime     *simruntime.Runtime
	dir         string // of the sockets
	daemon      *daemon.Daemon
	flags       []string
	keep        pleg.PodUID // the UID of a pod that lives on
	stopRuntime func()
	tab         context.Context //nolint:containedctx // chromedp finds the tab by its context

	mu       sync.Mutex
	problems []string // exceptions, refused content and foreign requests of the page
}

// newNode starts all of it and waits until the page shows the pods. The program follows
// CRI events, so that it knows a change at once.
func newNode(t *testing.T, pods int, flags ...string) *node {
	t.Helper()
	n := newClosedNode(t, pods, flags...)
	n.open(n.address())
	n.wait(fmt.Sprintf(`document.getElementById("count").textContent.replace(",", "") === %q`, fmt.Sprint(pods)))
	return n
}

// newClosedNode starts a node without opening its page.
func newClosedNode(t *testing.T, pods int, flags ...string) *node {
	t.Helper()
	rt := simruntime.New(simruntime.Options{Seed: 1})
	return serveNode(t, rt, simruntime.Population{Pods: pods, Containers: 1}, append([]string{"--events", "auto"}, flags...)...)
}

// serveNode starts a daemon on a runtime with these pods.
func serveNode(t *testing.T, rt *simruntime.Runtime, pods simruntime.Population, flags ...string) *node {
	t.Helper()
	rt.Populate(pods)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	n := &node{T: t, runtime: rt, flags: flags, dir: process.Dir(t), stopRuntime: func() { cancel(); <-ended }}
	go func() {
		defer close(ended)
		_ = rt.ListenAndServe(ctx, n.socket()) // ends with ctx; a runtime that fails fails the program
	}()
	t.Cleanup(n.stopRuntime)
	n.start("127.0.0.1:0")
	t.Cleanup(func() { _ = n.daemon.Stop() })
	return n
}

func (n *node) socket() string { return filepath.Join(n.dir, "cri.sock") }

func (n *node) start(listen string) {
	n.Helper()
	program, err := process.Program()
	kit.Must(n, err)
	n.daemon, err = daemon.Start(context.WithoutCancel(n.Context()), daemon.Options{
		Program: program, Dir: n.dir, Name: "pleg", Unready: true,
		Args: append([]string{"-r", "unix://" + n.socket(), "--listen", listen}, n.flags...),
	})
	kit.Must(n, err)
}

// address is the address at which the daemon serves its page.
func (n *node) address() string { return strings.TrimPrefix(n.daemon.URL, "http://") }

// open opens the page in a new tab. At the end the page must not have reported a problem.
func (n *node) open(address string) {
	n.Helper()
	tab, closeTab := chromedp.NewContext(browser)
	n.tab = tab
	n.Cleanup(func() {
		closeTab()
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, problem := range n.problems {
			n.Errorf("the page: %s", problem)
		}
	})
	n.do(chromedp.Sleep(0)) // opens the tab
	kit.Must(n, chromedp.Listen(tab, func(event any) { n.watch(address, event) }))
	for _, enable := range []error{
		call(tab, network.Enable, network.EnableParams{}), call(tab, log.Enable, cdp.Empty{}), call(tab, runtime.Enable, cdp.Empty{}),
		setSize(tab, 1280, 800, 1),
	} {
		if enable != nil {
			n.Fatal(enable)
		}
	}
	n.do(chromedp.Navigate("http://" + address + "/"))
}

// watch notes the errors of the page.
func (n *node) watch(address string, event any) {
	problem := ""
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = event.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError && event.Entry.Source != log.EntrySourceNetwork {
			problem = event.Entry.Text
		}
	case *network.EventRequestWillBeSent:
		if url := event.Request.URL; !strings.HasPrefix(url, "http://"+address+"/") && !strings.HasPrefix(url, "chrome") && url != "about:blank" {
			problem = "a request to " + url
		}
	}
	if problem != "" {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.problems = append(n.problems, problem)
	}
}

// call sends a command of the DevTools protocol whose result does not matter.
func call[P, R any](tab context.Context, command cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(tab, command, params)
	return err
}

func setSize(tab context.Context, width, height int64, scale float64) error {
	return call(tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: scale})
}

func (n *node) do(actions ...chromedp.Action[chromedp.Void]) {
	n.Helper()
	kit.Must(n, chromedp.Do(n.tab, actions...))
}

// eval returns the value of a JavaScript expression.
func eval[T any](n *node, expression string) T {
	n.Helper()
	value, err := chromedp.Run(n.tab, chromedp.Evaluate[T](expression))
	if err != nil {
		n.Fatalf("%s: %v", expression, err)
	}
	return value
}

// patience is far more than a busy machine needs.
const patience = 30 * time.Second

// wait waits until a JavaScript expression is true and returns how long that took.
func (n *node) wait(condition string) time.Duration {
	n.Helper()
	began := time.Now()
	for !eval[bool](n, "Boolean("+condition+")") {
		if time.Since(began) > patience {
			n.Fatalf("not after %v: %s\n%s", patience, condition, eval[string](n, "document.body.innerText"))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

// press types keys into the focused element.
func (n *node) press(keys string) {
	n.Helper()
	n.do(chromedp.KeyEvent(keys))
}

// slash presses the key that moves the focus to the filter. Unlike KeyEvent, it types no
// character if the page handles the key, as a keyboard does.
func (n *node) slash() {
	n.Helper()
	kit.Must(n, call(n.tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/"}))
	n.wait(`document.activeElement.id === "filter"`)
}

// texts returns the texts of all elements that a selector matches and that are visible.
func (n *node) texts(selector string) []string {
	n.Helper()
	return eval[[]string](n, fmt.Sprintf(`[...document.querySelectorAll(%q)].filter(e => e.checkVisibility()).map(e => e.textContent)`, selector))
}
