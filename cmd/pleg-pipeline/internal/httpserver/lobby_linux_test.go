package httpserver_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
)

// lobby returns the connections that a lobby passes on, until it is closed.
func lobby(t *testing.T, most int, patience time.Duration) (l net.Listener, accepted <-chan net.Conn) {
	l, err := httpserver.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if l, err = httpserver.NewLobby(l, most, patience); err != nil {
		t.Fatal(err)
	}
	conns, ended := make(chan net.Conn), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			conns <- conn
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l, conns
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	defer c.Close()
	text := make([]byte, len(want))
	if _, err := io.ReadFull(c, text); err != nil || string(text) != want {
		t.Errorf("read %q, %v, want %q", text, err, want)
	}
}

func ends(t *testing.T, c net.Conn, what string) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: %v, want it closed", what, err)
	}
}

// TestOldestSilentConnectionMakesRoom has more silent connections than a lobby keeps.
func TestOldestSilentConnectionMakesRoom(t *testing.T) {
	l, accepted := lobby(t, 2, time.Hour)
	address := l.Addr().String()
	silent := dial(t, address, 3)
	ends(t, silent[0], "the oldest of too many")
	say(t, silent[1], "second")
	hear(t, <-accepted, "second")
	newest := dial(t, address, 1)[0]
	say(t, newest, "newest")
	hear(t, <-accepted, "newest")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ends(t, silent[2], "a silent one of a closed lobby")
}

func TestLobbyForgetsThoseWhoLeave(t *testing.T) {
	l, accepted := lobby(t, 1, time.Hour)
	for range 10 {
		dial(t, l.Addr().String(), 1)[0].Close()
	}
	c := dial(t, l.Addr().String(), 1)[0]
	say(t, c, "hello")
	hear(t, <-accepted, "hello")
}

func TestSilentConnectionsEnd(t *testing.T) {
	l, _ := lobby(t, 10, 10*time.Millisecond)
	for range 2 { // the lobby works on after the first
		for _, c := range dial(t, l.Addr().String(), 3) {
			ends(t, c, "a connection that is silent for too long")
		}
	}
}

func TestSilentConnectionEndsWhileOthersCome(t *testing.T) {
	l, _ := lobby(t, 10, 10*time.Millisecond)
	silent := dial(t, l.Addr().String(), 1)[0]
	for range 10_000 {
		dial(t, l.Addr().String(), 1)[0].Close()
		if err := silent.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
	t.Error("a connection that is silent for too long is open")
}

// A connection may get the number of one that is closed for it, of which an event waits.
func TestLobbyTakesNobodyForAnother(t *testing.T) {
	l, err := httpserver.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if l, err = httpserver.NewLobby(l, 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first := dial(t, l.Addr().String(), 2)
	say(t, first[1], "first")
	heard := func(want string) {
		t.Helper()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		hear(t, conn, want)
	}
	heard("first") // the other is in the lobby, which does nothing until the next call
	last := dial(t, l.Addr().String(), 2)[1]
	say(t, first[0], "too late")
	go func() {
		time.Sleep(10 * time.Millisecond)
		_, _ = last.Write([]byte("last"))
	}()
	heard("last")
}

// A client may send all that it has to say and the end of it at once.
func TestLobbyHearsLastWords(t *testing.T) {
	l, accepted := lobby(t, 10, time.Hour)
	for _, c := range dial(t, l.Addr().String(), 3) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var corked error
		if err := raw.Control(func(fd uintptr) { corked = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) }); err != nil || corked != nil {
			t.Fatal(err, corked)
		}
		say(t, c, "all")
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		hear(t, <-accepted, "all")
	}
}
