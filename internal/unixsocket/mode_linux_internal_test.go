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
	for path, is := range map[string]string{link: "Lrwxrwxrwx", victim: "-rw-------"} {
		if _, err := setMode(path, mode); err == nil || err.Error() != "another file took its place ("+is+")" {
			t.Errorf("the mode of %s: %v, want that it is another file (%s)", path, err, is)
		}
	}
	if info, err := os.Stat(victim); err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Errorf("the file behind the link has the mode %v, %v", info.Mode(), err)
	}
}
