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
	// readTimeout is that deadline. It is far, because a slow caller must not
	// begin again.
	readTimeout = 24 * time.Hour
	// idleTimeout is how long a bucket that is being read may send nothing.
	idleTimeout = 30 * time.Second
	// quietTime is how long nothing comes until the leader is asked whether that was all: what
	// is missing may have been removed.
	quietTime = 100 * time.Millisecond
)

var errReadTimeout = errors.New("the server stopped sending")

func subjectsOf(bucket string, keys []string) []string {
	subjects := make([]string, len(keys))
	for i, key := range keys {
		subjects[i] = subjectOf(bucket, key)
	}
	return subjects
}

func subjectOf(bucket, key string) string { return "$KV." + bucket + "." + key }

// readBucket calls each once for every key that matches, with its last entry, through a
// consumer. If each returns an error, readBucket ends with it. Keys that are rewritten meanwhile
// come late or twice, so the mark that nats.go sends after as many messages as there were keys
// proves nothing. What proves that every key has come is a consumer that has nothing left to
// send and was not behind what the leader had acknowledged: any replica may serve it.
func (s *server) readBucket(ctx context.Context, bucket string, keys []string, each func(entry) error) error {
	if err := s.readKeys(ctx, s.nameOf(bucket), keys, each); err != nil {
		return fmt.Errorf("read bucket %s: %w", s.nameOf(bucket), err)
	}
	return nil
}

func (s *server) readKeys(ctx context.Context, name string, keys []string, each func(entry) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errReadTimeout)
	defer cancel()
	searching := time.AfterFunc(searchTimeout, cancel)
	bucket, err := request(ctx, s.js, func(ctx context.Context) (jetstream.KeyValue, error) { return s.js.KeyValue(ctx, name) })
	if err != nil {
		return err
	}
	newest := func() (uint64, error) { return s.lastSequence(ctx, "KV_"+name, subjectsOf(name, keys)...) }
	began, err := newest() // before the consumer begins: it also sends what is written after that
	if err != nil {
		return err
	}
	watcher, err := bucket.WatchFiltered(ctx, slices.Clone(keys)) // it changes them
	searching.Stop()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }()
	return gather(ctx, watcher.Updates(), began, newest, each)
}

// errBehind means that a replica sent a state that it then replaced by one that is older than the
// read. What happened between the two may be missing.
var errBehind = errors.New("the server that sends the states is behind the others")

// gather calls each for the first entry of each key, until all keys have come. newest asks for the
// newest revision that the leader has, 0 for none; began is its answer before the read. Any replica
// may send the updates, also one that does not have yet what the leader has acknowledged.
func gather(ctx context.Context, updates <-chan jetstream.KeyValueEntry, began uint64, newest func() (uint64, error), each func(entry) error) error {
	idle, quiet := time.NewTimer(idleTimeout), time.NewTicker(quietTime)
	defer idle.Stop()
	defer quiet.Stop()
	var (
		seen             = make(map[string]struct{})
		marked           bool
		revision, leader uint64
		err              error
	)
	for {
		select {
		case update, ok := <-updates:
			if !ok {
				return errReadTimeout
			}
			if update == nil {
				marked = true
				break // the leader is asked below
			}
			quiet.Reset(quietTime)
			idle.Reset(idleTimeout)
			revision = max(revision, update.Revision())
			if _, again := seen[update.Key()]; again && update.Revision() <= began {
				return errBehind
			} else if !again {
				seen[update.Key()] = struct{}{}
				if err := each(entryOf(update)); err != nil {
					return err
				}
				idle.Reset(idleTimeout) // each may have taken longer
			}
			if marked && update.Delta() == 0 && revision >= leader {
				return nil
			}
			continue
		case <-quiet.C:
			if !marked {
				continue
			}
		case <-idle.C:
			return errReadTimeout
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if leader, err = newest(); err != nil || revision >= leader {
			return err
		}
	}
}

func entryOf(update jetstream.KeyValueEntry) entry {
	e := entry{key: update.Key(), revision: update.Revision()}
	if update.Operation() == jetstream.KeyValuePut {
		e.value = update.Value()
	}
	return e
}

// readNode does what readBucket does for the keys of one node in [StateBucket], those without
// a wildcard first. It asks the leader for their names, and then for one after the other. The
// consumer of readBucket makes nats-server search the whole bucket, and so does a batched
// direct get if somebody writes meanwhile (fileStore.multiLastSeqsLocked in v2.15): 500
// agents that started kept a bucket of 500,000 keys busy for ever.
func (s *server) readNode(ctx context.Context, keys []string, each func(entry) error) error {
	for _, subject := range subjectsOf(s.nameOf(StateBucket), keys) {
		err := s.readSubject(ctx, subject, each)
		if err != nil {
			return fmt.Errorf("read bucket %s: %w", s.nameOf(StateBucket), explain(s.js.Conn(), err))
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
			messages[i], err = s.message(ctx, s.stateStream(), wanted{Last: subject})
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
		e := entry{key: strings.TrimPrefix(subjects[i], subjectOf(s.nameOf(StateBucket), "")), revision: m.Sequence}
		if m.isValue() {
			e.value = m.Data
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

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
