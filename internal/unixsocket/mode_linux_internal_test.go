//go:build linux

package unixsocket

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A link that took the place of the socket is not followed.
func TestModeOfALinkIsNotSet(t *testing.T) {
	dir := t.TempDir()
	victim, link := filepath.Join(dir, "victim"), filepath.Join(dir, "s")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, victim} {
		if _, err := setMode(path, mode); err == nil {
			t.Errorf("set the mode of %s", path)
		}
	}
	if info, err := os.Stat(victim); err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Errorf("the file behind the link has the mode %v, %v", info.Mode(), err)
	}
}
