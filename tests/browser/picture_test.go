package browser_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

var pictureFile = flag.String("page.picture", "", "write the picture of TestPicture to this `FILE`, after a minute of changes")

// TestPicture takes the picture that the README shows: a node on which one pod hangs.
func TestPicture(t *testing.T) {
	lasts := 5 * time.Second
	if *pictureFile != "" {
		lasts = 55 * time.Second
	}
	profile, err := simruntime.NewProfile(simruntime.ProfileNode)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := simruntime.New(simruntime.Options{Seed: 7, Profile: profile})
	if err != nil {
		t.Fatal(err)
	}
	n := serveNode(t, rt, simruntime.Population{Pods: 60, Containers: 2})
	n.open(n.address())
	if err := setSize(n.tab, 1280, 760, 1.5); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(max(lasts-12*time.Second, 0), func() {
		sick := rt.Pods()[3]
		_, _ = rt.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: sick.UID, Hang: true})
		for _, c := range sick.Containers {
			_, _ = rt.RestartContainer(c.ID)
		}
	})
	defer hang.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	if err := rt.Churn(ctx, simruntime.ChurnOptions{Seed: 7, Rate: 6}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	eval[any](n, `document.querySelector("[name=span][value='60']").click()`) // the timeline shows a minute
	n.wait(`document.querySelector("#rows [role=row]")`)
	png, err := chromedp.Run(n.tab, chromedp.CaptureScreenshot())
	if err != nil || len(png) < 10_000 {
		t.Fatalf("the picture has %d bytes: %v", len(png), err)
	}
	if *pictureFile != "" {
		if err := os.WriteFile(*pictureFile, png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
