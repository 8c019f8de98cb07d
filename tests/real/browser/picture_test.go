package browser_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var (
	pictures = flag.String("page.pictures", "", "write the pictures of TestPictures into this `DIR`")
	lasts    = flag.Duration("page.lasts", 2*time.Second, "how long pods change before a picture")
)

// scene is a node and a browser.
type scene struct {
	name          string
	pods          int
	width, height int64
	dark          bool
	// before is called twelve seconds before the picture, or at the start.
	before func(*node)
	shows  string // a condition
}

// hang makes the inspection of n.keep hang.
func (n *node) hang() {
	bad := n.runtime.Pod(n.keep)
	n.runtime.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: bad.UID, Hang: true})
	for _, c := range bad.Containers {
		_, _ = n.runtime.RestartContainer(c.ID)
	}
}

const severity = `document.getElementById("banner").dataset.severity`

// scenes are views of the page. The picture of a hang is in the README.
var scenes = []scene{
	{"healthy", 60, 1280, 760, false, nil, severity + ` === "ok" && !document.getElementById("pipeline").open && node.textContent !== "" && runtime.textContent.startsWith("simruntime ")`},
	{"hang", 60, 1280, 760, false, (*node).hang, severity + ` !== "ok" && document.getElementById("verdict").textContent.endsWith(" hangs")`},
	{"outage", 60, 1280, 760, false, func(n *node) { n.stopRuntime() }, severity + ` === "problem" && document.querySelector("[data-figure=listRate]").textContent === "0/s"`},
	{"many", 1000, 1120, 760, false, nil, `document.querySelectorAll("#rows [role=row]").length < 60 && /^(9..|1,0..)$/.test(document.getElementById("count").textContent)`},
	{"none", 0, 1280, 760, false, nil, `document.getElementById("empty").textContent === "no pods on this node"`},
	{"dark", 60, 1280, 760, true, (*node).hang, severity + ` !== "ok"`},
	{"phone", 60, 400, 800, false, (*node).hang, severity + ` !== "ok"`},
}

// TestPictures shows each scene: without a sideways scroll, and with its subject.
func TestPictures(t *testing.T) {
	for _, scene := range scenes {
		t.Run(scene.name, func(t *testing.T) { scene.test(t) })
	}
}

func (s scene) test(t *testing.T) {
	rt := simruntime.New(simruntime.Options{Seed: 7, Faults: simruntime.BusyNode()})
	n := serveNode(t, rt, simruntime.Population{Pods: s.pods, Containers: 2})
	if s.pods > 0 {
		n.keep = rt.Pods()[3].UID
	}
	n.open(n.address())
	kit.Must(t, setSize(n.tab, s.width, s.height, 1.5))
	if s.dark {
		dark := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}
		kit.Must(t, call(n.tab, emulation.SetEmulatedMedia, dark))
	}
	ctx, cancel := context.WithTimeout(t.Context(), *lasts)
	defer cancel()
	if s.before != nil {
		defer time.AfterFunc(max(*lasts-12*time.Second, 0), func() { s.before(n) }).Stop()
	}
	if s.pods == 0 {
		<-ctx.Done()
	} else if err := rt.Churn(ctx, simruntime.ChurnOptions{Seed: 7, Rate: 6, Keep: []pleg.PodUID{n.keep}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	n.wait(s.shows)
	if wide := eval[int](n, `Math.max(document.documentElement.scrollWidth - innerWidth, grid.scrollWidth - grid.clientWidth)`); wide > 0 {
		t.Errorf("the page scrolls sideways by %d pixels", wide)
	}
	png, err := chromedp.Run(n.tab, chromedp.CaptureScreenshot())
	if err != nil || len(png) < 10_000 {
		t.Fatalf("the picture has %d bytes: %v", len(png), err)
	}
	if *pictures != "" {
		kit.Must(t, os.WriteFile(filepath.Join(*pictures, s.name+".png"), png, 0o644))
	}
}
