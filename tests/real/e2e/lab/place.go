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

// place is the folder of a lab. The names of everything else that the lab makes on
// the machine derive from it, so that the folder is enough to remove a lab.
type place struct{ dir string }

// name is also the name of the network and of the cgroup.
func (p place) name() string     { return filepath.Base(p.dir) }
func (p place) socket() string   { return p.file("runtime.sock") }
func (p place) cni() string      { return p.file("cni") }
func (p place) conflist() string { return filepath.Join(p.cni(), "10-lab.conflist") }
func (p place) plugins() string  { return p.file("plugins") }

func (p place) file(name string) string { return filepath.Join(p.dir, name) }

// bridge is at most 14 bytes long; the kernel's limit is 15.
func (p place) bridge() string { return "pleg" + strings.TrimPrefix(p.name(), placePrefix) }

// newPlace makes a folder and locks it for as long as this process lives, or
// until unlock is called.
func newPlace() (p place, unlock func(), err error) {
	for range 10 {
		dir, err := os.MkdirTemp("", placePrefix)
		if err != nil {
			return place{}, nil, fmt.Errorf("make lab folder: %w", err)
		}
		// A concurrent sweep may have locked or removed the folder.
		unlock, err := lockFile(dir, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue
		}
		if _, err := os.Stat(dir); err != nil {
			unlock()
			continue
		}
		// The name of a shim's socket is 64 digits long; the kernel allows 108 bytes.
		if len(dir) > 40 {
			unlock()
			return place{}, nil, fmt.Errorf("make lab folder: %s is too long for a socket's path: %w", dir, os.Remove(dir))
		}
		return place{dir}, unlock, nil
	}
	return place{}, nil, fmt.Errorf("make lab folder in %s: others removed it each time", os.TempDir())
}

// lockFile locks a file or folder. If it does not exist, lockFile creates a file.
// The kernel releases the lock when this process ends.
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

// subnets counts the subnets of this process, which are far apart.
var subnets atomic.Int32

const subnetStep = 37

// freeSubnet returns a /22, for 1000 pods, that no interface of this machine uses.
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
	// Labs that start at the same time need different subnets, although a bridge gets its address
	// with its first pod. The process id and a counter separate them.
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
