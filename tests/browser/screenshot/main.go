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

const (
	pods          = 60
	width, height = 1280, 760
	rate          = 6.0 // changes a second
	// after is how long the node runs before.
	after = 55 * time.Second
	// oneMinute makes the timeline as long as the node runs.
	oneMinute = `document.querySelector("[name=span][value='60']").click()`
)

func main() {
	out := flag.String("out", "page.png", "the `FILE` to write")
	root := flag.String("root", ".", "the `FOLDER` of the main module")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := takePicture(ctx, *root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "screenshot:", err)
		os.Exit(1)
	}
}

func takePicture(ctx context.Context, root, out string) error {
	dir, err := os.MkdirTemp("", "pleg-screenshot-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	profile, err := simruntime.NewProfile(simruntime.ProfileNode)
	if err != nil {
		return err
	}
	runtime, err := simruntime.New(simruntime.Options{Seed: 7, Profile: profile})
	if err != nil {
		return err
	}
	if _, err := runtime.Populate(simruntime.Population{Pods: pods, Containers: 2}); err != nil {
		return err
	}
	node := lab.Serve(ctx, runtime, dir)
	defer node.Stop()
	binary, err := lab.Build(ctx, root, dir)
	if err != nil {
		return err
	}
	daemon, err := node.StartDaemon(ctx, binary, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = daemon.Stop() }()
	tab, stopBrowser, err := lab.StartBrowser(ctx)
	if err != nil {
		return err
	}
	defer stopBrowser()
	if err := lab.Emulate(tab, width, height, 1.5, "light"); err != nil {
		return err
	}
	if err := chromedp.Do(tab, chromedp.Navigate(daemon.URL+"/")); err != nil {
		return err
	}
	if err := live(ctx, runtime); err != nil {
		return err
	}
	if _, err := chromedp.Run(tab, chromedp.Evaluate[any](oneMinute)); err != nil {
		return err
	}
	time.Sleep(time.Second)
	png, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(out, png, 0o644)
}

// live lets pods come and go for a while; one of them hangs.
func live(ctx context.Context, node *simruntime.Runtime) error {
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	time.AfterFunc(after-12*time.Second, func() {
		sick := node.Pods()[3]
		_, _ = node.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: sick.UID, Hang: true})
		for _, c := range sick.Containers {
			_, _ = node.RestartContainer(c.ID)
		}
	})
	err := node.Churn(ctx, simruntime.ChurnOptions{Seed: 7, Rate: rate})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
