package host_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// images is the connection to a runtime that says where its images are, in /images unless it says otherwise.
type images struct {
	grpc.ClientConnInterface
	at    *atomic.Value
	asked *atomic.Int64
}

func (i images) Invoke(_ context.Context, _ string, _, answer any, _ ...grpc.CallOption) error {
	a, ok := answer.(*runtimeapi.ImageFsInfoResponse)
	if !ok {
		return errors.ErrUnsupported
	}
	path := "/images"
	if i.at != nil {
		path = i.at.Load().(string)
		i.asked.Add(1)
	}
	a.ImageFilesystems = []*runtimeapi.FilesystemUsage{
		{FsId: &runtimeapi.FilesystemIdentifier{}}, {FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: path}},
	}
	return nil
}

// Images that move, as with another configuration of the runtime, are found after ten minutes. If the runtime does not
// say where they are, they are where they were; until it says it once, it is asked at each look.
func TestImagesThatMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at atomic.Value
		var asked atomic.Int64
		at.Store("")
		w := host.New(host.Options{
			Usage:   func(string) (float64, float64, error) { return 97, 10, nil },
			Sockets: func() ([]host.Socket, error) { return nil, nil },
		})
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, images{at: &at, asked: &asked}, podcache.New()) })
		for _, test := range []struct {
			says, want string
			lasts      time.Duration
			asked      int64
		}{
			{"", "", 12 * time.Second, 3}, {"/images", "/images", time.Minute, 4}, {"/other", "/other", 10 * time.Minute, 5}, {"", "/other", 11 * time.Minute, 29},
		} {
			at.Store(test.says)
			moved := time.Now()
			time.Sleep(test.lasts + 100*time.Millisecond)
			synctest.Wait()
			var r pleg.Report
			w.Report(&r)
			disk := nodestate.Of(r.Details).Disk
			if disk == nil != (test.want == "") || disk != nil && (disk.Path != test.want || disk.Since.Before(moved) != (test.says == "")) {
				t.Errorf("the disk is %+v, want %s since some time after %v unless it has not moved", disk, test.want, moved)
			}
			if facts, _ := w.Facts(); facts.ImageFilesystem != test.want || asked.Load() != test.asked {
				t.Errorf("the images are in %s according to %d answers, want %s according to %d", facts.ImageFilesystem, asked.Load(), test.want, test.asked)
			}
		}
	})
}

var proc = fstest.MapFS{
	"self/stat": {}, "7/stat": {Data: []byte("7 (agent) T 1")}, "7/fd/3": {Data: []byte("socket:[70]"), Mode: fs.ModeSymlink},
	"7/fd/4":  {Data: []byte("socket:[71]"), Mode: fs.ModeSymlink},
	"13/stat": {Data: []byte("13 (agent) T 1")}, "13/fd/3": {Data: []byte("socket:[130]"), Mode: fs.ModeSymlink},
	"14/fd/3": {Data: []byte("socket:[140]"), Mode: fs.ModeSymlink}, // it has ended
	"12/stat": {Data: []byte("12 (crictl) S 1")}, "12/fd/3": {Data: []byte("socket:[120]"), Mode: fs.ModeSymlink},
	"8/stat": {Data: []byte("8 (other) S 1")}, "8/fd/3": {Data: []byte("socket:[80]"), Mode: fs.ModeSymlink},
}

// TestUnread watches clients with something to read. looks are the unread bytes of each second; after the
// last, nothing changes for nine seconds, and then all is read. The socket has one name for
// the runtime and another one here, as with /var/run.
func TestUnread(t *testing.T) {
	const agent, again, other, unknown, stuck = 70, 71, 80, 90, 130 // the agent uses two connections
	dir := t.TempDir()
	kit.Must(t, os.WriteFile(filepath.Join(dir, "runtime"), nil, 0o600))
	kit.Must(t, errors.Join(os.Symlink(".", filepath.Join(dir, "run")), os.Symlink(".", filepath.Join(dir, "var"))))
	clients := map[uint32]*nodestate.Process{agent: {PID: 7, Name: "agent", State: "T"}, other: {PID: 8, Name: "other", State: "S"}, stuck: {PID: 13, Name: "agent", State: "T"}, again: {PID: 7, Name: "agent", State: "T"}}
	for name, test := range map[string]struct {
		looks []map[uint32]int
		want  []uint32 // the daemon's findings
	}{
		"reads":             {[]map[uint32]int{{agent: 900}, {}}, nil},
		"is slow":           {[]map[uint32]int{{agent: 900}, {agent: 900}, {agent: 800}, {agent: 900}, {agent: 900}, {agent: 500}, {}}, nil},
		"reads a little":    {[]map[uint32]int{{agent: 900}, {agent: 900}, {agent: 900}, {agent: 900}, {agent: 900}, {agent: 800}}, nil},
		"reads late":        {[]map[uint32]int{{agent: 900}, {agent: 900}, {agent: 900}, {agent: 900}, {}}, nil},
		"reads all":         {[]map[uint32]int{{agent: 900}, {agent: 900}, {agent: 900}, {agent: 900}, {}, {agent: 900}}, nil},
		"stopped":           {[]map[uint32]int{{agent: 900}, {agent: 1000}, {agent: 1100}, {agent: 1200}}, []uint32{agent}},
		"stopped, twice":    {[]map[uint32]int{{agent: 500}, {agent: 500}, {agent: 500}, {agent: 500, again: 500}}, []uint32{agent}},
		"later the other":   {[]map[uint32]int{{again: 500}, {again: 500}, {again: 500}, {agent: 500, again: 500}}, []uint32{agent}},
		"a second later":    {[]map[uint32]int{{}, {agent: 900}}, []uint32{agent}}, // and found after 5 s, no later
		"runs":              {[]map[uint32]int{{other: 900}}, []uint32{other}},
		"is unknown":        {[]map[uint32]int{{unknown: 900}}, []uint32{unknown}},
		"the longest first": {[]map[uint32]int{{other: 900}, {other: 900, unknown: 950}}, []uint32{other, unknown}},
		"the most first":    {[]map[uint32]int{{other: 950, unknown: 900}}, []uint32{other, unknown}},
		"two of a name":     {[]map[uint32]int{{stuck: 950, agent: 900}}, []uint32{stuck, agent}},
		"in either order":   {[]map[uint32]int{{other: 900, unknown: 950}}, []uint32{unknown, other}},
		"the stopped first": {[]map[uint32]int{{other: 900}, {other: 900, agent: 900}, {other: 900, agent: 900}}, []uint32{agent, other}},
		"whoever it is":     {[]map[uint32]int{{other: 900}, {other: 900, stuck: 900}, {other: 900, stuck: 900}}, []uint32{stuck, other}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			began := time.Now()
			o := host.Options{Endpoint: "unix://" + filepath.Join(dir, "var", "runtime"), Proc: proc, Usage: usage, Sockets: func() ([]host.Socket, error) {
				sockets := []host.Socket{{Inode: 1, Peer: 7, Unread: 1}, {Path: "/other", Peer: agent, Unread: 1000}, {Path: dir, Peer: agent, Unread: 1000}}
				second := int(time.Since(began).Seconds())
				if second > 9 {
					return sockets, nil
				}
				look := test.looks[min(second, len(test.looks)-1)]
				for _, peer := range slices.Backward(slices.Sorted(maps.Keys(look))) { // the second connection first
					sockets = append(sockets, host.Socket{Path: filepath.Join(dir, "run", "runtime"), Peer: peer, Unread: look[peer]})
				}
				return sockets, nil
			}}
			require := func(got []nodestate.Unread, want []uint32) {
				t.Helper()
				if len(got) != len(want) {
					t.Fatalf("found %+v, want %d", got, len(want))
				}
				for i, peer := range want {
					if c, of := got[i].Client, clients[peer]; (c == nil) != (of == nil) || c != nil && *c != *of || got[i].Bytes < 900 {
						t.Errorf("found %+v of %+v, want %+v", got[i], c, of)
					}
				}
			}
			w := host.New(o)
			kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, images{}, podcache.New()) })
			var r pleg.Report
			for _, soon := range []bool{true, false} { // a client has not read for 5 s at the look of the sixth second
				time.Sleep(map[bool]time.Duration{true: 5900, false: 200}[soon] * time.Millisecond)
				synctest.Wait()
				if w.Report(&r); (len(nodestate.Of(r.Details).Unread) > 0) != (!soon && len(test.want) > 0) {
					t.Errorf("after %v: %+v", time.Since(began), r.Details)
				}
			}
			time.Sleep(2900 * time.Millisecond)
			synctest.Wait()
			r = pleg.Report{}
			w.Report(&r)
			unread := nodestate.Of(r.Details).Unread
			require(unread, test.want)
			if len(unread) > 0 && unread[0].Since.Sub(began) > 2*time.Second {
				t.Errorf("since %v, want its beginning", unread[0].Since)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			r = pleg.Report{}
			if w.Report(&r); len(nodestate.Of(r.Details).Unread) > 0 {
				t.Errorf("found %+v after all was read", r.Details)
			}
		})
	}
}

func usage(string) (used, inodes float64, err error) { return 0, 0, fs.ErrNotExist }

// TestDisk fills a disk and empties it, with a step for each look.
func TestDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = 5 * time.Second
		steps := []struct {
			used, inodes float64
			full         bool
			err          error
		}{
			{50, 10, false, nil},
			{94.9, 0, false, nil},
			{95, 10, true, nil},
			{94, 10, true, nil},
			{10, 99, true, nil},
			{93.9, 10, false, nil},
			{94.5, 10, false, nil},
			{97, 10, true, nil},
			{0, 0, false, fs.ErrNotExist},
			{94.5, 10, false, nil}, // the disk was unmounted
		}
		began := time.Now()
		var since time.Time
		var facts host.Facts // the last that were known
		w := host.New(host.Options{
			Usage: func(path string) (float64, float64, error) {
				if path != "/images" {
					return usage(path)
				}
				step := steps[max(0, time.Since(began)/period-1)]
				return step.used, step.inodes, step.err
			},
			Sockets: func() ([]host.Socket, error) { return nil, fs.ErrPermission },
		})
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, images{}, podcache.New()) })
		for n, step := range steps {
			time.Sleep(period)
			synctest.Wait()
			var r pleg.Report
			w.Report(&r)
			disk := nodestate.Of(r.Details).Disk
			if (disk != nil) != step.full {
				t.Fatalf("look %d: %+v, want full %t", n, disk, step.full)
			}
			if !step.full {
				since = time.Now().Add(period)
			}
			if want := (nodestate.Disk{Since: since, Path: "/images", Used: step.used, Inodes: step.inodes}); step.full && *disk != want {
				t.Errorf("look %d: %+v, want %+v", n, *disk, want)
			}
			if step.err == nil {
				facts = host.Facts{ImageFilesystem: "/images", UsedPercent: &step.used, InodesPercent: &step.inodes}
			}
			if got, _ := w.Facts(); !reflect.DeepEqual(got, facts) {
				t.Errorf("look %d: the facts are %+v, want %+v", n, got, facts)
			}
		}
	})
}

// The usage is that of unprivileged processes, as of df. A filesystem without blocks is not full.
func TestUsage(t *testing.T) {
	var st unix.Statfs_t
	kit.Must(t, unix.Statfs(".", &st))
	used, inodes, err := host.Usage(".")
	freeInodes := 100.0 // as in a filesystem without a limit
	if st.Files > 0 {
		freeInodes = 100 * float64(st.Ffree) / float64(st.Files)
	}
	if free := 100 * float64(st.Bavail) / float64(st.Blocks); err != nil || math.Abs(100-used-free) > 0.1 || math.Abs(100-inodes-freeInodes) > 0.1 {
		t.Errorf("%v %% of the bytes and %v %% of the inodes are in use, %v; want that %v %% and %v %% are free", used, inodes, err, free, freeInodes)
	}
	if used, inodes, err := host.Usage("/proc/self"); used != 0 || inodes != 0 || err != nil {
		t.Errorf("of /proc %v %% and %v %%, %v", used, inodes, err)
	}
	if _, _, err := host.Usage("/nonexistent"); !errors.Is(err, fs.ErrNotExist) || err.Error() != "statfs /nonexistent: no such file or directory" {
		t.Errorf("of a path that does not exist: %v", err)
	}
}
