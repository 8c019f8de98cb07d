package httpserver

import (
	"container/list"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// acceptBatch is the greatest number of connections that are accepted before those that have
// sent something are served.
const acceptBatch = 256

// lobby is a listener that passes a connection on once its client has sent something.
// Until then the connection costs no goroutine: a flood of silent ones hardly delays the
// others, and leaves a client that starves beside it the time to ask. The goroutine that
// calls Accept owns ready, silent and places.
type lobby struct {
	*net.TCPListener
	listener syscall.RawConn
	number   int32    // the file descriptor of the listener
	poll     *os.File // an epoll instance, which Go's own poller watches
	ready    []int    // connections that have sent something
	silent   *list.List
	places   map[int32]*list.Element // in silent
	most     int
	patience time.Duration
	closed   atomic.Bool
}

// guest is a silent connection. The first in the list came first.
type guest struct {
	fd   int
	came time.Time
}

// newLobby takes over a listener. Only one of TCP gets a lobby, with at most so many silent
// connections: the next one replaces the oldest. None is silent for longer than patience.
func newLobby(l net.Listener, most int, patience time.Duration) (net.Listener, error) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return l, nil
	}
	listener, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	nonblock := os.NewSyscallError("fcntl", unix.SetNonblock(poll, true))
	b := &lobby{
		TCPListener: tcp, listener: listener, poll: os.NewFile(uintptr(poll), "epoll"),
		silent: list.New(), places: make(map[int32]*list.Element), most: most, patience: patience,
	}
	var watched error
	err = listener.Control(func(fd uintptr) {
		b.number = int32(fd)
		watched = watch(poll, int(fd))
	})
	if err := errors.Join(nonblock, err, watched); err != nil {
		return nil, errors.Join(err, b.poll.Close())
	}
	return b, nil
}

// watch reports when there is something to read.
func watch(poll, fd int) error {
	err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

// Accept implements [net.Listener]. Only one goroutine may call it.
func (b *lobby) Accept() (net.Conn, error) {
	for {
		for len(b.ready) > 0 {
			fd := b.ready[0]
			b.ready = b.ready[1:]
			if conn, err := connOf(fd); err == nil {
				return conn, nil
			}
		}
		err := b.wait()
		if b.closed.Load() {
			b.closeAll()
			return nil, net.ErrClosed
		}
		if err != nil {
			return nil, err
		}
	}
}

// connOf takes over a connection.
func connOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "")
	defer func() { _ = file.Close() }()
	return net.FileConn(file)
}

// Close implements [net.Listener]. Accept then closes the connections that it has.
func (b *lobby) Close() error {
	b.closed.Store(true)
	return errors.Join(b.poll.Close(), b.TCPListener.Close())
}

// wait waits until a client comes, a silent one has sent something, or one has been silent
// for too long.
func (b *lobby) wait() error {
	var deadline time.Time
	if oldest := b.silent.Front(); oldest != nil {
		deadline = oldest.Value.(guest).came.Add(b.patience)
	}
	if err := b.poll.SetReadDeadline(deadline); err != nil {
		return err
	}
	poll, err := b.poll.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = poll.Read(func(poll uintptr) bool {
		var events [acceptBatch]unix.EpollEvent
		n, err := unix.EpollWait(int(poll), events[:], 0)
		if err != nil && err != unix.EINTR {
			failed = os.NewSyscallError("epoll_wait", err)
		}
		for _, event := range events[:max(0, n)] {
			if event.Fd == b.number {
				failed = b.acceptSome(int(poll))
			} else if place := b.places[event.Fd]; place != nil {
				_ = unix.EpollCtl(int(poll), unix.EPOLL_CTL_DEL, int(event.Fd), nil)
				b.receive(int(poll), b.leave(place))
			}
		}
		return n > 0 || failed != nil
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.dropOldest()
		return nil
	case err != nil:
		return err
	}
	return failed
}

func (b *lobby) acceptSome(poll int) error {
	for range acceptBatch {
		var fd int
		var err error
		if err := b.listener.Control(func(listener uintptr) {
			fd, _, err = unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		}); err != nil {
			return err
		}
		switch {
		case err == nil:
			b.receive(poll, fd)
		case err == unix.EAGAIN:
			return nil
		case err == unix.EINTR || err == unix.ECONNABORTED:
		case (err == unix.EMFILE || err == unix.ENFILE) && b.silent.Len() > 0:
			b.dropOldest()
		default:
			return &net.OpError{Op: "accept", Net: "tcp", Addr: b.Addr(), Err: os.NewSyscallError("accept4", err)}
		}
	}
	return nil
}

// receive decides where a connection belongs.
func (b *lobby) receive(poll, fd int) {
	n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case n > 0:
		b.ready = append(b.ready, fd)
	case err == unix.EAGAIN && watch(poll, fd) == nil:
		if b.silent.Len() >= b.most {
			b.dropOldest()
		}
		b.places[int32(fd)] = b.silent.PushBack(guest{fd, time.Now()})
	default: // its client has closed it
		_ = unix.Close(fd)
	}
}

func (b *lobby) leave(place *list.Element) (fd int) {
	fd = b.silent.Remove(place).(guest).fd
	delete(b.places, int32(fd))
	return fd
}

func (b *lobby) dropOldest() { _ = unix.Close(b.leave(b.silent.Front())) }

func (b *lobby) closeAll() {
	for b.silent.Len() > 0 {
		b.dropOldest()
	}
	for _, fd := range b.ready {
		_ = unix.Close(fd)
	}
	b.ready = nil
}
