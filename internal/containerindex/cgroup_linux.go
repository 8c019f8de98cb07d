package containerindex

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
)

// fileIDKernfs is the type of a file handle that is the id of a kernfs node
// (FILEID_KERNFS in linux/exportfs.h).
const fileIDKernfs = 0xfe

// pathOfCgroup returns the cgroup v2 with this id. The kernel finds it by its file handle;
// without CAP_DAC_READ_SEARCH all cgroups are searched for the inode, which is the id.
func (h Host) pathOfCgroup(ctx context.Context, x *Index, id uint64) (string, error) {
	root := h.cgroup()
	if unified := filepath.Join(root, "unified"); isCgroup2(unified) {
		root = unified // cgroup v1 beside v2
	}
	if !isCgroup2(root) {
		return "", fmt.Errorf("find the cgroup: %s is not a cgroup v2 hierarchy, only there do cgroups have ids", root)
	}
	mount, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", root, err)
	}
	defer func() { _ = unix.Close(mount) }()
	handle := binary.NativeEndian.AppendUint64(nil, id)
	dir, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(fileIDKernfs, handle), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	switch {
	case errors.Is(err, unix.ESTALE):
		return "", fmt.Errorf("%w: the cgroup does not exist", lookup.ErrNoContainer)
	case errors.Is(err, unix.EPERM):
		return x.pathOfInode(ctx, root, id)
	case err != nil:
		return "", fmt.Errorf("find the cgroup: %w", err)
	}
	defer func() { _ = unix.Close(dir) }()
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil {
		return "", fmt.Errorf("find the cgroup: %w", err)
	}
	return strings.TrimPrefix(path, root), nil
}

// pathOfInode searches all cgroups. One search runs at a time, and ends with ctx: a node may have
// thousands of cgroups.
func (x *Index) pathOfInode(ctx context.Context, root string, inode uint64) (path string, err error) {
	select {
	case x.searching <- struct{}{}:
		defer func() { <-x.searching }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	err = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || !d.IsDir() {
			return nil // cgroups come and go
		}
		if info, err := d.Info(); err == nil && info.Sys().(*syscall.Stat_t).Ino == inode {
			path = strings.TrimPrefix(dir, root)
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && path == "" {
		err = fmt.Errorf("%w: the cgroup does not exist", lookup.ErrNoContainer)
	}
	return path, err
}

func isCgroup2(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC
}

// isGone reports whether reading a file of proc failed because the process has ended.
func isGone(err error) bool { return errors.Is(err, unix.ESRCH) }
