// Package host finds dangers to a runtime that the lists and statuses of its pods do not show:
// clients that do not read from the runtime, a filesystem that is almost full, lists that are
// almost too large, and conditions that the runtime itself reports.
package host

import (
	"context"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/shim"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lookPeriod is the time between two looks at the sockets, diskPeriod between two at the disk.
	lookPeriod, diskPeriod = time.Second, 5 * time.Second
	// firstLook is the time of the first look, when the runtime has answered the first lists.
	firstLook = 500 * time.Millisecond
	// unreadFor is how long a client does not read before that is a trouble: on a busy node,
	// clients are late.
	unreadFor = 5 * time.Second
	// imagesPeriod is the time after which the runtime is asked again where its images are.
	imagesPeriod = 10 * time.Minute
	// readyPeriod is the time between two questions whether the runtime is ready, listsPeriod between
	// two looks at the size of the lists.
	readyPeriod, listsPeriod = 10 * time.Second, time.Minute
	// askTimeout bounds a question.
	askTimeout = 5 * time.Second
	// full is the percentage at which a disk is almost full: a kubelet evicts pods at a lower one.
	// The trouble ends below emptier, so that it does not come and go.
	full, emptier = 95, 94
)

// Options say where to look. All fields except Proc, Cgroups and
// Follower are required.
type Options struct {
	// Endpoint is the address of the runtime.
	Endpoint string
	// Proc contains the processes, as /proc does. If nil, they are not known.
	Proc fs.FS
	// Cgroups contains the cgroups, as /sys/fs/cgroup does. If nil, containers that had ended before
	// are not found.
	Cgroups fs.FS
	// Follower follows processes. If nil, pidfds do.
	Follower shim.Follower
	// Sockets returns the connected unix sockets.
	Sockets func() ([]Socket, error)
	// Usage returns how many percent of a filesystem's bytes and inodes are in use.
	Usage func(path string) (used, inodes float64, err error)
}

// Watcher looks at the node. Create it with [New].
type Watcher struct {
	o      Options
	unread atomic.Pointer[[]nodestate.Unread]
	disk   atomic.Pointer[nodestate.Disk]
	silent atomic.Pointer[pleg.Trouble]
	// Each loop uses its own.
	ready, sizes, counts atomic.Pointer[[]pleg.Trouble]
	facts                atomic.Pointer[Facts]
	lists                atomic.Pointer[[]List]
}

// Facts are figures of the node. Those that are not known are left out.
type Facts struct {
	// ImageFilesystem is the mount point with images and containers.
	ImageFilesystem string   `json:"imageFilesystem,omitempty"`
	UsedPercent     *float64 `json:"usedPercent,omitempty"`
	InodesPercent   *float64 `json:"inodesPercent,omitempty"`
}

// New returns a watcher that has not looked yet.
func New(o Options) *Watcher { return &Watcher{o: o} }

// Report adds the findings to a report. It does not block.
func (w *Watcher) Report(r *pleg.Report) {
	var unread []nodestate.Unread
	nodestate.Change(&r.Details, func(n *nodestate.State) {
		if found := w.unread.Load(); found != nil {
			n.Unread = *found
		}
		unread, n.Disk = n.Unread, w.disk.Load()
	})
	if silent := w.silent.Load(); silent != nil && len(unread) == 0 { // unread names the client
		r.Troubles = append(r.Troubles, *silent)
	}
	for _, of := range []*atomic.Pointer[[]pleg.Trouble]{&w.ready, &w.sizes, &w.counts} {
		if found := of.Load(); found != nil {
			r.Troubles = append(r.Troubles, *found...)
		}
	}
}

// Facts returns the newest figures of the node, and the newest sizes of the lists; nil until they are known.
func (w *Watcher) Facts() (facts Facts, lists []List) {
	if f := w.facts.Load(); f != nil {
		facts = *f
	}
	if l := w.lists.Load(); l != nil {
		lists = *l
	}
	return facts, lists
}

// Run looks until ctx ends, and returns its cause. It asks the runtime at the other end of the
// connection. pods is the cache of a pipeline.
func (w *Watcher) Run(ctx context.Context, runtime grpc.ClientConnInterface, pods cache.Reader) error {
	loops, ctx := errgroup.WithContext(ctx)
	loops.Go(func() error {
		r := readers{o: w.o}
		return each(ctx, lookPeriod, func(now time.Time) {
			found := r.look(now, unreadFor)
			w.unread.Store(&found)
		})
	})
	loops.Go(func() error { // its own loop: a disk or a runtime that hangs delays nothing else
		var path string
		var asked time.Time
		return each(ctx, diskPeriod, func(now time.Time) {
			if now.Sub(asked) >= imagesPeriod { // also until it is known
				if found := images(ctx, runtime); found != "" {
					path, asked = found, now
				}
			}
			used, inodes, err := w.o.Usage(path)
			if path == "" || err != nil { // as in a container that does not mount it
				w.disk.Store(nil)
				return
			}
			w.facts.Store(&Facts{path, &used, &inodes})
			w.disk.Store(fullDisk(w.disk.Load(), path, used, inodes, now))
		})
	})
	loops.Go(func() error {
		return each(ctx, readyPeriod, func(now time.Time) {
			if found, err := notReady(ctx, runtime); err == nil { // otherwise the lists show it
				keep(&w.ready, found, now)
			}
		})
	})
	loops.Go(func() error {
		return each(ctx, listsPeriod, func(now time.Time) {
			sizes, found, err := lists(ctx, runtime)
			if err != nil { // the lists of the pipeline show this error
				w.sizes.Store(nil)
				return
			}
			for _, l := range sizes {
				if t, is := l.trouble(); is {
					found = append(found, t)
				}
			}
			w.lists.Store(&sizes)
			keep(&w.sizes, found, now)
		})
	})
	loops.Go(func() error {
		return each(ctx, readyPeriod, func(now time.Time) { keep(&w.counts, counted(pods.List()), now) })
	})
	loops.Go(func() error {
		l := listener{o: w.o, runtime: runtimeapi.NewRuntimeServiceClient(runtime), pods: pods, publish: w.silent.Store}
		return each(ctx, startsPeriod, func(now time.Time) { l.look(ctx, now) })
	})
	return loops.Wait()
}

// keep publishes troubles with the time at which each was first found.
func keep(in *atomic.Pointer[[]pleg.Trouble], found []pleg.Trouble, now time.Time) {
	var before []pleg.Trouble
	if b := in.Load(); b != nil {
		before = *b
	}
	found = lasting(before, found, now)
	in.Store(&found)
}

// each calls look soon and then once a period, until ctx ends, and returns its cause.
func each(ctx context.Context, period time.Duration, look func(now time.Time)) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	soon := time.After(firstLook)
	for {
		select {
		case <-soon:
			look(time.Now())
		case <-ticker.C:
			look(time.Now())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fullDisk returns the filesystem of a path if it is almost full. before is its result of the last
// look, or nil.
func fullDisk(before *nodestate.Disk, path string, used, inodes float64, now time.Time) *nodestate.Disk {
	limit, since := float64(full), now
	if before != nil && before.Path == path {
		limit, since = emptier, before.Since
	}
	if max(used, inodes) < limit {
		return nil
	}
	return &nodestate.Disk{Since: since, Path: path, Used: used, Inodes: inodes}
}

// images returns where the filesystem with the images of a runtime is mounted; "" if the runtime
// does not say.
func images(ctx context.Context, runtime grpc.ClientConnInterface) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, _ := runtimeapi.NewImageServiceClient(runtime).ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	for _, f := range answer.GetImageFilesystems() {
		if path := f.GetFsId().GetMountpoint(); path != "" {
			return path
		}
	}
	return ""
}

// Usage returns how many percent of the bytes and inodes of the filesystem of path are in use, for
// [Options]. Without inodes, inodes is 0. The error comes from statfs.
func Usage(path string) (used, inodes float64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	percent := func(total, free float64) float64 {
		if total == 0 {
			return 0
		}
		return 100 * (total - free) / total
	}
	// The types of the fields differ between systems.
	return percent(float64(st.Blocks), float64(st.Bavail)), percent(float64(st.Files), float64(st.Ffree)), nil
}
