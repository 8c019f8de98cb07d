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

const (
	// acceptBatch is the greatest number of connections that are accepted before those that
	// have sent something are served.
	acceptBatch = 256
	// closeBatch is the greatest number of connections that are closed before the lobby
	// looks again.
	closeBatch = 32
)

// lookAfter is the time after which the lobby looks by itself while clients are silent. A
// goroutine that a timer wakes runs next, but one that waits for a file descriptor comes
// behind all that can run, which a flood makes many.
const lookAfter = 5 * time.Millisecond

// lobby is a listener that passes a connection on once its client has sent something.
// Until then the connection costs no goroutine: a flood of silent ones hardly delays the
// others, and leaves a client that starves beside it the time to ask. The goroutine that
// calls Accept owns ready, silent, places and gone.
type lobby struct {
	*net.TCPListener
	listener syscall.RawConn
	number   int32    // the file descriptor of the listener
	poll     *os.File // an epoll instance, which Go's own poller watches
	ready    []int    // connections that have sent something
	silent   *list.List
	places   map[int32]*list.Element // in silent
	gone     []int                   // connections whose clients send nothing more, and perhaps sent nothing
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
		watched = watch(poll, int(fd), unix.EPOLLIN)
	})
	if err := errors.Join(nonblock, err, watched); err != nil {
		return nil, errors.Join(err, b.poll.Close())
	}
	return b, nil
}

// watch reports the events of a file. It may be watched already: an event that waits may be
// of a file that was closed meanwhile and had its number.
func watch(poll, fd int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(fd)}
	err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &event)
	if err == unix.EEXIST {
		err = unix.EpollCtl(poll, unix.EPOLL_CTL_MOD, fd, &event)
	}
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
	now := time.Now()
	b.dropLate(now)
	if b.silent.Len() > 0 {
		deadline = now.Add(min(lookAfter, b.patience))
	}
	if err := b.poll.SetReadDeadline(deadline); err != nil {
		return err
	}
	poll, err := b.poll.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = poll.Read(func(poll uintptr) (found bool) {
		found, failed = b.look(int(poll))
		return found || failed != nil
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return failed
}

// look reports whether there was something to do. A flood that ends leaves thousands of
// connections to close, which is done last.
func (b *lobby) look(poll int) (found bool, err error) {
	var events [acceptBatch]unix.EpollEvent
	n, err := unix.EpollWait(poll, events[:], 0)
	switch {
	case errors.Is(err, unix.EINTR):
		return true, nil
	case err != nil:
		return false, os.NewSyscallError("epoll_wait", err)
	}
	for _, event := range events[:n] {
		place := b.places[event.Fd]
		switch {
		case event.Fd == b.number:
			err = b.acceptSome(poll)
		case place == nil:
		case event.Events&unix.EPOLLRDHUP != 0:
			b.gone = append(b.gone, b.leave(place))
		default:
			b.receive(poll, b.leave(place))
		}
	}
	found = n > 0 || len(b.gone) > 0
	for i := 0; i < closeBatch && len(b.gone) > 0 && len(b.ready) == 0; i++ {
		b.receive(poll, b.firstGone())
	}
	return found, err
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
		case (err == unix.EMFILE || err == unix.ENFILE) && b.silent.Len()+len(b.gone) > 0:
			b.makeRoom()
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
	case err == unix.EAGAIN && watch(poll, fd, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLONESHOT) == nil:
		if b.silent.Len()+len(b.gone) >= b.most {
			b.makeRoom()
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

func (b *lobby) dropLate(now time.Time) {
	for b.silent.Len() > 0 && now.Sub(b.silent.Front().Value.(guest).came) >= b.patience {
		b.dropOldest()
	}
}

// makeRoom closes a connection.
func (b *lobby) makeRoom() {
	if len(b.gone) > 0 {
		_ = unix.Close(b.firstGone())
		return
	}
	b.dropOldest()
}

func (b *lobby) firstGone() (fd int) {
	fd, b.gone = b.gone[0], b.gone[1:]
	return fd
}

func (b *lobby) dropOldest() { _ = unix.Close(b.leave(b.silent.Front())) }

func (b *lobby) closeAll() {
	for b.silent.Len() > 0 {
		b.dropOldest()
	}
	for _, fd := range append(b.ready, b.gone...) {
		_ = unix.Close(fd)
	}
	b.ready, b.gone = nil, nil
}
