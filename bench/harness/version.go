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

// Version says what was measured.
type Version struct {
	// Revision is that of the repository when the measurement began, for people;
	// empty if git does not tell.
	Revision string `json:"revision,omitempty"`
	// Programs is a hash of the programs. Built without the revision in them they
	// are the same for the same code, whatever was committed besides.
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
			return Version{}, fmt.Errorf("program that is measured: %w", err)
		}
		hash.Write(program)
	}
	return Version{Revision: revision(root), Programs: hex.EncodeToString(hash.Sum(nil)[:8])}, nil
}

// revision is the commit of the work tree, with a plus if its code differs.
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
