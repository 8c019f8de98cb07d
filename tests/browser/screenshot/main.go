// Command screenshot takes the picture of the page that the README shows: a simulated
// node on which one pod hangs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/browser/lab"
)

func main() {
	var s shot
	flag.StringVar(&s.out, "out", "page.png", "the `FILE` to write")
	flag.StringVar(&s.root, "root", ".", "the `FOLDER` of the main module")
	flag.StringVar(&s.scheme, "scheme", "light", "light or dark")
	flag.IntVar(&s.pods, "pods", 60, "the `NUMBER` of pods")
	flag.Int64Var(&s.width, "width", 1280, "the width of the window")
	flag.Int64Var(&s.height, "height", 760, "the height of the window")
	flag.Float64Var(&s.rate, "rate", 6, "changes a second")
	flag.DurationVar(&s.after, "after", 55*time.Second, "how long the node runs before")
	flag.StringVar(&s.script, "script", oneMinute, "JavaScript to run in the page a second before")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := s.capture(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "screenshot:", err)
		os.Exit(1)
	}
}

// oneMinute makes the timeline as long as the node runs.
const oneMinute = `document.querySelector("[name=span][value='60']").click()`

type shot struct {
	out, root, scheme, script string
	pods                      int
	width, height             int64
	rate                      float64
	after                     time.Duration
}

func (s *shot) capture(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "pleg-screenshot-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	profile, err := simruntime.NewProfile(simruntime.ProfileNode)
	if err != nil {
		return err
	}
	node, err := simruntime.New(simruntime.Options{Seed: 7, Profile: profile})
	if err != nil {
		return err
	}
	if _, err := node.Populate(simruntime.Population{Pods: s.pods, Containers: 2}); err != nil {
		return err
	}
	socket, stopRuntime := lab.ServeRuntime(ctx, node, dir)
	defer stopRuntime()
	binary, err := lab.Build(ctx, s.root, dir)
	if err != nil {
		return err
	}
	program, err := lab.StartProgram(ctx, binary, socket, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = program.Stop() }()
	tab, stopBrowser, err := lab.StartBrowser(ctx)
	if err != nil {
		return err
	}
	defer stopBrowser()
	if err := lab.Emulate(tab, s.width, s.height, 1.5, s.scheme); err != nil {
		return err
	}
	if err := chromedp.Do(tab, chromedp.Navigate("http://"+program.Address+"/")); err != nil {
		return err
	}
	if err := s.live(ctx, node); err != nil {
		return err
	}
	if _, err := chromedp.Run(tab, chromedp.Evaluate[any](s.script)); err != nil {
		return err
	}
	time.Sleep(time.Second)
	png, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(s.out, png, 0o644)
}

// live lets pods come and go for a while; one of them hangs.
func (s *shot) live(ctx context.Context, node *simruntime.Runtime) error {
	ctx, cancel := context.WithTimeout(ctx, s.after)
	defer cancel()
	time.AfterFunc(s.after-12*time.Second, func() {
		sick := node.Pods()[3]
		_, _ = node.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: sick.UID, Hang: true})
		for _, c := range sick.Containers {
			_, _ = node.RestartContainer(c.ID)
		}
	})
	err := node.Churn(ctx, simruntime.ChurnOptions{Seed: 7, Rate: s.rate})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
