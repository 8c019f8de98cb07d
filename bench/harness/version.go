package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Version identifies the programs that were measured.
type Version struct {
	// Revision is that of the repository when the measurement began, for readers;
	// empty if git does not report one.
	Revision string `json:"revision,omitempty"`
	// Programs is a hash of the programs. They are built without the revision, so
	// that the same code has the same hash.
	Programs string `json:"programs"`
}

func versionOf(root, bin string) (Version, error) {
	hash := sha256.New()
	for _, name := range []string{"harness", "node", "client", "kubelet"} {
		program, err := os.ReadFile(filepath.Join(bin, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Version{}, fmt.Errorf("hash program: %w", err)
		}
		hash.Write(program)
	}
	return Version{Revision: revision(root), Programs: hex.EncodeToString(hash.Sum(nil)[:8])}, nil
}

// revision is the commit of the work tree, with a plus if the code differs from it.
func revision(root string) string {
	head, err := exec.Command("git", "-C", root, "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "" // no repository, or another user's
	}
	changes, err := exec.Command("git", "-C", root, "status", "--porcelain", "--", "*.go", "*go.mod", "*go.sum").Output()
	if err != nil || len(changes) > 0 {
		return string(bytes.TrimSpace(head)) + "+"
	}
	return string(bytes.TrimSpace(head))
}
