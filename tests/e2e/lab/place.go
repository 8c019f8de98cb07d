//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

const placePrefix = "pleg-lab-"

// place is the folder of a lab. Every name that the lab takes from the machine
// follows from it, so that a lab can be removed by anyone who finds its folder.
type place struct{ dir string }

// name is also the name of the network and of the cgroup.
func (p place) name() string    { return filepath.Base(p.dir) }
func (p place) config() string  { return filepath.Join(p.dir, "containerd.toml") }
func (p place) socket() string  { return filepath.Join(p.dir, "containerd.sock") }
func (p place) cni() string     { return filepath.Join(p.dir, "cni") }
func (p place) plugins() string { return filepath.Join(p.dir, "plugins") }
func (p place) log() string     { return filepath.Join(p.dir, "containerd.log") }

// bridge is at most 14 bytes long; an interface may have 15.
func (p place) bridge() string { return "pleg" + strings.TrimPrefix(p.name(), placePrefix) }

// newPlace makes a folder and locks it for as long as this process lives, or
// until unlock is called.
func newPlace() (p place, unlock func(), err error) {
	for range 10 {
		dir, err := os.MkdirTemp("", placePrefix)
		if err != nil {
			return place{}, nil, fmt.Errorf("make lab folder: %w", err)
		}
		// Who sweeps at this moment may have got the lock, or the folder.
		unlock, err := lockFile(dir, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue
		}
		if _, err := os.Stat(dir); err != nil {
			unlock()
			continue
		}
		// A shim's socket is named by 64 digits; the kernel allows 108 bytes.
		if len(dir) > 40 {
			unlock()
			return place{}, nil, fmt.Errorf("make lab folder: %s is too long for a socket's path: %w", dir, os.Remove(dir))
		}
		return place{dir}, unlock, nil
	}
	return place{}, nil, fmt.Errorf("make lab folder in %s: all are taken away", os.TempDir())
}

// lockFile locks a file or folder and creates a file that does not exist. The
// kernel releases the lock when this process ends.
func lockFile(path string, how int) (unlock func(), err error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// subnets counts those that this process has asked for, which are far apart.
var subnets atomic.Int32

const subnetStep = 37

// freeSubnet returns a /22 that no interface of this machine uses: room for
// 1000 pods.
func freeSubnet() (netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("find a free subnet: %w", err)
	}
	var used []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			used = append(used, p)
		}
	}
	// The process id, and a number within the process, keep labs that start
	// together apart: their bridges have no address until the first pod comes.
	first := os.Getpid() + int(subnets.Add(1))*subnetStep
	for i := range 64 * 16 {
		n := (first + i) % (64 * 16)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(200 + n/64), byte(n % 64 * 4), 0}), 22)
		if !slices.ContainsFunc(used, p.Overlaps) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("find a free subnet: none from 10.200.0.0 to 10.215.255.255")
}
