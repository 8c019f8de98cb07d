package httpserver

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/crypto/bcrypt"
)

const (
	// maxChecks is the greatest number of passwords that wait for their check, and
	// maxHostChecks that of one host. A check takes about 0.1 s of one core, so that a
	// client waits less than a second however many others guess.
	maxChecks     = 8
	maxHostChecks = 2
)

var (
	errWrongPassword = errors.New("user or password is wrong")
	errManyPasswords = errors.New("too many passwords are being checked")
)

// costliest returns the configured hash whose comparison takes longest. It is compared for
// users who do not exist, so that the time does not show who exists.
func costliest(c *web.Config) (hash []byte) {
	most := -1
	for _, h := range c.Users {
		if cost, err := bcrypt.Cost([]byte(h)); err == nil && cost > most {
			hash, most = []byte(h), cost
		}
	}
	return hash
}

// passwords checks passwords, one at a time, and remembers correct ones.
type passwords struct {
	salt    string     // so that what is remembered in memory is of no use elsewhere
	compare sync.Mutex // one comparison at a time leaves a core for the pipeline

	mu      sync.Mutex                   // guards what follows
	correct map[string][sha256.Size]byte // the last one of each user, with its hash
	waiting map[string]int               // per host
	total   int
}

func newPasswords() *passwords {
	return &passwords{
		salt: rand.Text(), correct: make(map[string][sha256.Size]byte), waiting: make(map[string]int),
	}
}

// verify returns nil if the configuration has this user with this password. It returns
// errManyPasswords at once if too many others wait.
func (p *passwords) verify(c *web.Config, host, user, password string) error {
	hash, known := c.Users[user]
	key := sha256.Sum256([]byte(p.salt + "\x00" + string(hash) + "\x00" + password))
	if ok, err := p.startCheck(user, key, host); ok || err != nil {
		return err
	}
	expected := []byte(hash)
	if !known {
		expected = costliest(c)
	}
	p.compare.Lock()
	err := bcrypt.CompareHashAndPassword(expected, []byte(password))
	p.compare.Unlock()
	ok := known && err == nil
	p.finishCheck(user, key, host, ok)
	if !ok {
		return errWrongPassword
	}
	return nil
}

// startCheck returns true if the password is known to be correct. Otherwise it adds a check
// of this host, unless there are too many.
func (p *passwords) startCheck(user string, key [sha256.Size]byte, host string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if correct, ok := p.correct[user]; ok && correct == key {
		return true, nil
	}
	if p.total >= maxChecks || p.waiting[host] >= maxHostChecks {
		return false, errManyPasswords
	}
	p.total++
	p.waiting[host]++
	return false, nil
}

func (p *passwords) finishCheck(user string, key [sha256.Size]byte, host string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.waiting[host]--; p.waiting[host] == 0 {
		delete(p.waiting, host)
	}
	if ok {
		p.correct[user] = key
	}
}
