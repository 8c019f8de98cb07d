package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

func closeListener(l net.Listener) {
	if l != nil {
		_ = l.Close()
	}
}

// listenSocket returns nil without --socket. It creates the directory of the socket, because /run
// is empty after a boot, but not its parents.
func (c *runCommand) listenSocket(ctx context.Context, out console) (net.Listener, error) {
	if c.socket == "" {
		return nil, nil
	}
	path, err := filepath.Abs(c.socket)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.settings.name("socket"), err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s: %w", c.settings.name("socket"), err)
	}
	listener, err := server.Listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.settings.name("socket"), err)
	}
	out.say(ctx, "serving pods and events on %s; to see them: %s events --connect %s", path, Name, path)
	return listener, nil
}

// listenHTTP returns nil without --listen.
func (c *runCommand) listenHTTP(ctx context.Context, out console) (net.Listener, error) {
	if c.listen == "" {
		return nil, nil
	}
	if err := httpserver.CheckWebConfig(c.webConfig); err != nil {
		return nil, fmt.Errorf("--web-config: %w", err)
	}
	listener, err := httpserver.Listen(ctx, c.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	scheme := "http"
	if c.webConfig != "" {
		scheme = "http(s)"
	}
	condition := ""
	if !httpserver.IsLocal(listener.Addr()) {
		condition = "; pods and events only to clients that --web-config authenticates, because other machines can connect"
	}
	out.say(ctx, "serving a page, metrics, health, pods and events on %s://%v%s", scheme, listener.Addr(), condition)
	return listener, nil
}

// listenHealth returns nil without --health-listen.
func (c *runCommand) listenHealth(ctx context.Context, out console) (net.Listener, error) {
	if c.health == "" {
		return nil, nil
	}
	listener, err := httpserver.Listen(ctx, c.health)
	if err != nil {
		return nil, fmt.Errorf("--health-listen: %w", err)
	}
	out.say(ctx, "serving health for probes on http://%v", listener.Addr())
	return listener, nil
}
