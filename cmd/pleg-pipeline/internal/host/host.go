// Package host finds what endangers a runtime and what no CRI call shows: clients that do not read
// what the runtime sends them, and a filesystem that is almost full.
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

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lookPeriod is the time between two looks at the sockets, diskPeriod between two at the disk.
	lookPeriod, diskPeriod = time.Second, 5 * time.Second
	// unreadFor is how long a client does not read before it counts: on a busy node, clients are
	// late.
	unreadFor = 5 * time.Second
	// imagesPeriod is the time after which the runtime is asked again where its images are.
	imagesPeriod = 10 * time.Minute
	// askTimeout bounds that question.
	askTimeout = 5 * time.Second
	// full is the percentage at which a disk is almost full: a kubelet has evicted pods before. The
	// trouble ends below emptier, so that it does not come and go.
	full, emptier = 95, 94
)

// Options say where to look. All fields except Proc are required.
type Options struct {
	// Endpoint is the address of the runtime.
	Endpoint string
	// Proc contains the processes, as /proc does. If nil, they are not known.
	Proc fs.FS
	// Sockets returns the connected unix sockets.
	Sockets func() ([]Socket, error)
	// Usage returns how many percent of a filesystem's bytes and inodes are in use.
	Usage func(path string) (used, inodes float64, err error)
}

// Watcher looks at the node. Create it with [New].
type Watcher struct {
	o      Options
	unread atomic.Pointer[[]pleg.Unread]
	disk   atomic.Pointer[pleg.Disk]
}

// New returns a watcher that has not looked yet.
func New(o Options) *Watcher { return &Watcher{o: o} }

// Report adds what was found to a report. It does not block.
func (w *Watcher) Report(r *pleg.Report) {
	if unread := w.unread.Load(); unread != nil {
		r.Unread = *unread
	}
	r.Disk = w.disk.Load()
}

// Run looks until ctx ends, and returns its cause. It asks the runtime at the other end of the
// connection where its images are.
func (w *Watcher) Run(ctx context.Context, runtime grpc.ClientConnInterface) error {
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
			if path == "" || now.Sub(asked) >= imagesPeriod {
				if found := Images(ctx, runtime); found != "" {
					path, asked = found, now
				}
			}
			used, inodes, err := w.o.Usage(path)
			if path == "" || err != nil { // as in a container that does not mount it
				w.disk.Store(nil)
				return
			}
			w.disk.Store(FullDisk(w.disk.Load(), path, used, inodes, now))
		})
	})
	return loops.Wait()
}

// each calls look once a period until ctx ends, and returns its cause.
func each(ctx context.Context, period time.Duration, look func(now time.Time)) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			look(time.Now())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// FullDisk returns the filesystem of a path if it is almost full. before is what it returned at the
// last look, or nil.
func FullDisk(before *pleg.Disk, path string, used, inodes float64, now time.Time) *pleg.Disk {
	limit, since := float64(full), now
	if before != nil && before.Path == path {
		limit, since = emptier, before.Since
	}
	if max(used, inodes) < limit {
		return nil
	}
	return &pleg.Disk{Since: since, Path: path, Used: used, Inodes: inodes}
}

// Images returns where the filesystem with the images of a runtime is mounted; "" if the runtime
// does not say.
func Images(ctx context.Context, runtime grpc.ClientConnInterface) string {
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
