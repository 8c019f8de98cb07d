//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// pollPeriod is the time between two looks at a state that the lab waits for. It
// is not shorter because other clients may be measured at the same time.
const pollPeriod = 10 * time.Millisecond

// maxAnswer is the maximum size of an answer in bytes, which is containerd's limit.
const maxAnswer = 16 << 20

// podsAtOnce is the number of pods that RunPods and Stop handle at the same time.
// With more of them containerd is not faster.
const podsAtOnce = 8

// stopTimeout bounds [Lab.Stop]; the machine may be busy.
const stopTimeout = 3 * time.Minute

// cniBinDir is the folder of Debian's package containernetworking-plugins.
const cniBinDir = "/usr/lib/cni"

// cniPlugins are the plugins that a lab uses.
var cniPlugins = []string{"bridge", "host-local", "loopback"}

// Options are the settings of a lab.
type Options struct {
	// DiskSize is the size in bytes of two file systems in memory for containerd's
	// root and state, which [Lab.FillDisk] fills. If zero, root and state are folders.
	DiskSize int64
}

// Check returns an error if this machine cannot run a lab with the default runtime.
func Check() error {
	r := DefaultRuntime()
	e, ok := engines[r]
	if !ok {
		return fmt.Errorf("there is no runtime %q: want one of %q", r, slices.Sorted(maps.Keys(engines)))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the lab needs root to mount and to make cgroups and a bridge (uid is %d)", os.Geteuid())
	}
	for _, tool := range append([]string{"runc", "ip", "go"}, e.tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the lab needs %s: run tests/real/e2e/setup.sh %s: %w", tool, r, err)
		}
	}
	for _, plugin := range cniPlugins {
		if _, err := os.Stat(filepath.Join(cniBinDir, plugin)); err != nil {
			return fmt.Errorf("the lab needs the CNI plugin %s: run tests/real/e2e/setup.sh: %w", plugin, err)
		}
	}
	return nil
}

// Lab is a running container runtime. Several goroutines may call its methods, but only
// one at a time for the same container.
type Lab struct {
	opts     Options
	engine   engine
	binaries binaries
	place    place
	subnet   netip.Prefix
	unlock   func()
	conn     *grpc.ClientConn
	runtime  runtimeapi.RuntimeServiceClient
	images   runtimeapi.ImageServiceClient
	history  *History
	daemon   *process.Process
	// revived is the time of the last [Lab.Revive] in Unix nanoseconds.
	revived atomic.Int64
	full    bool // by [Lab.FillDisk]
	// frozen is the cgroup of [Lab.FreezeCgroup]; empty if there is none.
	frozen string
}

// Start runs a runtime and returns once it answers over CRI and knows the pod image. If
// tests/real/e2e/.bin does not contain the runtime, Start builds it first, which takes minutes; ctx
// bounds that. After an error nothing is left behind.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	e := engines[DefaultRuntime()]
	b, err := provide(ctx, e)
	if err != nil {
		return nil, err
	}
	_ = sweep(ctx) // remains of other labs disturb nothing
	p, unlock, err := newPlace()
	if err != nil {
		return nil, err
	}
	l := &Lab{opts: opts, engine: e, binaries: b, place: p, unlock: unlock, history: newHistory()}
	if err := l.start(ctx); err != nil {
		if l.daemon != nil {
			err = fmt.Errorf("%w; end of the runtime's log:\n%s", err, l.daemon.Tail())
		}
		err = fmt.Errorf("start lab: %w", err)
		return nil, errors.Join(err, l.Stop(ctx))
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) error {
	var err error
	if l.subnet, err = freeSubnet(); err != nil {
		return err
	}
	if l.opts.DiskSize > 0 {
		if err := l.place.mountDisks(l.opts.DiskSize); err != nil {
			return err
		}
	}
	if err := writePlugins(l.engine, l.binaries, l.place); err != nil {
		return err
	}
	if err := writeNetwork(l.place, l.subnet); err != nil {
		return err
	}
	if err := writeFiles(l.engine, l.binaries, l.place, l.engine.files, l.place.dir); err != nil {
		return err
	}
	if err := l.startDaemon(); err != nil {
		return err
	}
	// By default a client waits for a second or more after a refused connection.
	retry := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}
	l.conn, err = grpc.NewClient(l.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(retry),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return fmt.Errorf("dial the runtime: %w", err)
	}
	l.runtime = runtimeapi.NewRuntimeServiceClient(l.conn)
	l.images = runtimeapi.NewImageServiceClient(l.conn)
	if err := l.awaitReady(ctx); err != nil {
		return err
	}
	return l.importImage(ctx)
}

// awaitReady returns once the runtime and its network are ready for pods.
func (l *Lab) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return l.daemon.Await(ctx, func(ctx context.Context) error {
		resp, err := l.runtime.Status(ctx, &runtimeapi.StatusRequest{})
		for _, c := range resp.GetStatus().GetConditions() {
			if (c.GetType() == "RuntimeReady" || c.GetType() == "NetworkReady") && !c.GetStatus() {
				return fmt.Errorf("%s: %s", c.GetReason(), c.GetMessage())
			}
		}
		return err
	})
}

// importImage gives the runtime the pod image.
func (l *Lab) importImage(ctx context.Context) error {
	archive := l.place.file("image.tar")
	if err := WriteImage(archive, filepath.Join(l.binaries.own, "podimage")); err != nil {
		return err
	}
	load := l.engine.load(l.binaries, l.place, archive)
	if _, err := run(ctx, "", l.engine.env(l.binaries, l.place), load[0], load[1:]...); err != nil {
		return err
	}
	// containerd's CRI plugin learns of the image asynchronously.
	return poll(ctx, "the pod image", func() (bool, error) {
		resp, err := l.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: Image}})
		return resp.GetImage() != nil, err
	})
}

// Traits returns the traits of the runtime of this lab.
func (l *Lab) Traits() Traits { return l.engine.traits }

// Endpoint returns the address of the CRI socket, with scheme unix.
func (l *Lab) Endpoint() string { return "unix://" + l.place.socket() }

// CgroupParent returns the cgroup in which [Lab.Stop] ends all processes.
func (l *Lab) CgroupParent() string { return "/" + l.place.name() }

// PID returns the process id of the running runtime.
func (l *Lab) PID() int { return l.daemon.PID() }

// History returns the history of this lab.
func (l *Lab) History() *History { return l.history }

// Runtime returns a CRI client for calls without a method of Lab. Changes made with it are not in
// the history.
func (l *Lab) Runtime() runtimeapi.RuntimeServiceClient { return l.runtime }

// Stop removes the pods, ends the runtime and removes everything that the lab made.
// It continues after ctx has ended, for at most [stopTimeout], because it is mostly called then.
// Stop may be called twice.
func (l *Lab) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	l.endFaults()
	if l.daemon != nil && l.daemon.Alive() == nil {
		_ = l.removeAllPods(ctx) // destroy kills remaining processes
		l.Terminate()
	}
	var err error
	if l.conn != nil {
		err = l.conn.Close()
		l.conn = nil
	}
	err = errors.Join(err, l.place.destroy(context.WithoutCancel(ctx)))
	l.removeOldFiles()
	l.unlock()
	return err
}

// endFaults ends the faults that would prevent the removal of pods.
func (l *Lab) endFaults() {
	_ = l.EndTeardown()
	_ = l.FreeDisk()
	_ = l.ThawCgroup()
	for _, pid := range l.place.shims() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// removeAllPods takes at most three quarters of the time of Stop.
func (l *Lab) removeAllPods(ctx context.Context) error {
	if l.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout*3/4)
	defer cancel()
	_ = l.Thaw()
	resp, err := l.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(podsAtOnce)
	for _, sandbox := range resp.GetItems() {
		g.Go(func() error {
			id := sandbox.GetId()
			_, stopErr := l.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
			_, err := l.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
			return errors.Join(stopErr, err)
		})
	}
	return g.Wait()
}
