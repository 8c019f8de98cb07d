package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// entry is the last message of a key in a bucket.
type entry struct {
	key      string
	revision uint64
	// value is nil if the message is the mark of a removal.
	value []byte
}

const (
	// searchTimeout is how long the server may search a bucket before it answers: seconds
	// for 500,000 keys. nats.go gives it 5 s unless the context has a deadline.
	searchTimeout = 2 * time.Minute
	// readTimeout is that deadline. It is far, because a consumer that reads slowly must
	// not begin again.
	readTimeout = 24 * time.Hour
	// idleTimeout is how long a bucket that is being read may send nothing.
	idleTimeout = 30 * time.Second
)

var (
	errReadTimeout = errors.New("the server stopped sending")
	errBehind      = errors.New("the server that answers does not have everything yet")
)

// newest returns the revision of the newest entry of keys in a bucket; 0 if it has none. Any
// replica may answer who reads entries, also one that does not have yet what the leader has
// acknowledged. It must have this revision.
func (s *server) newest(ctx context.Context, bucket jetstream.KeyValue, keys []string) (uint64, error) {
	return s.lastSequence(ctx, "KV_"+bucket.Bucket(), subjectsOf(bucket, keys)...)
}

// subjectsOf returns the subjects of keys in a bucket.
func subjectsOf(bucket jetstream.KeyValue, keys []string) []string {
	subjects := make([]string, len(keys))
	for i, key := range keys {
		subjects[i] = subjectOf(bucket, key)
	}
	return subjects
}

func subjectOf(bucket jetstream.KeyValue, key string) string {
	return "$KV." + bucket.Bucket() + "." + key
}

// readBucket calls each for the last entry of every key that matches, through a consumer. If
// each returns an error, readBucket ends with it. It ends with errBehind if a replica read
// that was behind: only the last of its entries shows that.
func (s *server) readBucket(ctx context.Context, bucket jetstream.KeyValue, keys []string, each func(entry) error) error {
	newest, err := s.newest(ctx, bucket, keys)
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errReadTimeout)
	defer cancel()
	searching := time.AfterFunc(searchTimeout, cancel)
	watcher, err := bucket.WatchFiltered(ctx, slices.Clone(keys)) // it changes them
	searching.Stop()
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), err)
	}
	defer func() { _ = watcher.Stop() }()
	idle := time.NewTimer(idleTimeout)
	defer idle.Stop()
	var revision uint64
	for {
		select {
		case update, ok := <-watcher.Updates():
			if !ok {
				return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), errReadTimeout)
			}
			if update == nil { // all values are read
				if revision < newest {
					return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), errBehind)
				}
				return nil
			}
			revision = max(revision, update.Revision())
			e := entry{key: update.Key(), revision: update.Revision()}
			if update.Operation() == jetstream.KeyValuePut {
				e.value = update.Value()
			}
			if err := each(e); err != nil {
				return err
			}
			idle.Reset(idleTimeout)
		case <-idle.C:
			return fmt.Errorf("read bucket %s: %w", bucket.Bucket(), errReadTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readNode does what readBucket does for the keys of one node in [StateBucket], those without
// a wildcard first. It asks the leader for their names, and then for one after the other. The
// consumer of readBucket makes nats-server search the whole bucket, and so does a batched
// direct get if somebody writes meanwhile (fileStore.multiLastSeqsLocked in v2.15): 500
// agents that started kept a bucket of 500,000 keys busy for ever.
func (s *server) readNode(ctx context.Context, keys []string, each func(entry) error) error {
	for _, subject := range subjectsOf(s.state, keys) {
		err := s.readSubject(ctx, subject, each)
		if err != nil {
			return fmt.Errorf("read bucket %s: %w", StateBucket, explain(s.js.Conn(), err))
		}
	}
	return nil
}

func (s *server) readSubject(ctx context.Context, subject string, each func(entry) error) error {
	subjects := []string{subject}
	if strings.ContainsAny(subject, "*>") {
		info, err := s.states.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return err
		}
		subjects = slices.Collect(maps.Keys(info.State.Subjects))
	}
	messages := make([]*storedMessage, len(subjects))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(s.atOnce)
	for i, subject := range subjects {
		asking.Go(func() (err error) {
			messages[i], err = s.lastMessage(ctx, stateStream, subject)
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	for i, m := range messages {
		if m == nil { // it has been removed meanwhile
			continue
		}
		e := entry{key: strings.TrimPrefix(subjects[i], subjectOf(s.state, "")), revision: m.Sequence}
		value, err := m.isValue()
		if err != nil {
			return fmt.Errorf("headers of %s: %w", e.key, err)
		}
		if value {
			e.value = m.Data
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// apiPrefix is that of the subjects of JetStream's API.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	default:
		return jetstream.DefaultAPIPrefix
	}
}
