package backend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redlock"
)

const quorumForm = "write redlock://[user:password@]host[:port],host[:port],host[:port][/db][?tls=true&max_ttl=30s], an odd number of independent Redis servers"

// memberLimit is how long a member has to answer when it is connected to.
const memberLimit = 3 * time.Second

// openQuorum opens a quorum of Redis servers. A minority that cannot be reached is tried again whenever it is needed.
func openQuorum(ctx context.Context, raw, prefix string) (driver.Driver, error) {
	urls, maxTTL, err := members(raw)
	if err != nil {
		return nil, err
	}
	var ms []driver.Driver
	for _, u := range urls {
		ms = append(ms, &member{open: func(ctx context.Context) (*redislock.Driver, error) {
			ctx, cancel := context.WithTimeout(ctx, memberLimit)
			defer cancel()
			return redislock.Open(ctx, u, &redislock.Options{Prefix: prefix})
		}})
	}
	q := redlock.New(ms, &redlock.Options{MaxTTL: maxTTL})
	if err := q.Check(); err != nil {
		return nil, &URLError{err.Error() + "; " + quorumForm}
	}
	errs := make([]error, len(ms))
	var wg sync.WaitGroup
	for i, m := range ms {
		wg.Go(func() { _, errs[i] = m.(*member).get(ctx) })
	}
	wg.Wait()
	down := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	for _, err := range down {
		if errors.Is(err, driver.ErrInvalid) {
			q.Close()
			return nil, err
		}
	}
	if up := len(ms) - len(down); up <= len(ms)/2 {
		q.Close()
		return nil, fmt.Errorf("%d of %d servers can be used, %d are needed: %w", up, len(ms), len(ms)/2+1, errors.Join(down...))
	}
	return q, nil
}

// members are the URLs of a quorum's servers. Errors do not repeat raw.
func members(raw string) (urls []string, maxTTL time.Duration, err error) {
	bad := func(format string, args ...any) ([]string, time.Duration, error) {
		return nil, 0, &URLError{fmt.Sprintf(format, args...) + "; " + quorumForm}
	}
	_, rest, _ := strings.Cut(raw, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	tail, err := url.Parse("redlock://host" + rest[end:])
	if err != nil || tail.Fragment != "" {
		return bad("the URL of the quorum cannot be read")
	}
	scheme, query := "redis", tail.Query()
	for name, values := range query {
		switch value := values[0]; {
		case name == "tls" && (value == "true" || value == "false"):
			if value == "true" {
				scheme = "rediss"
			}
		case name == "max_ttl":
			if maxTTL, err = time.ParseDuration(value); err != nil || maxTTL <= 0 {
				return bad("max_ttl should be a duration such as 30s")
			}
		default:
			return bad("the URL has a parameter %q that is not known, or has no such value", name)
		}
	}
	hosts := strings.Split(rest[at:end], ",")
	for i, h := range hosts {
		switch {
		case h == "":
			return bad("host number %d of the quorum is empty", i+1)
		case slices.Contains(hosts[:i], h):
			return bad("host number %d of the quorum is there twice", i+1)
		}
		urls = append(urls, scheme+"://"+rest[:at]+h+tail.EscapedPath())
	}
	return urls, maxTTL, nil
}

// member is a server of a quorum, connected to when it is first needed and, if that fails, again a little later.
type member struct {
	open func(ctx context.Context) (*redislock.Driver, error)

	one    sync.Mutex // held by who connects
	mu     sync.Mutex
	d      *redislock.Driver
	err    error
	again  time.Time
	closed bool
}

const memberPause = time.Second // before a server that could not be connected to is tried again

func (m *member) get(ctx context.Context) (*redislock.Driver, error) {
	look := func() (*redislock.Driver, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case m.closed:
			return nil, fmt.Errorf("%w: %w", driver.ErrClosed, driver.ErrNotDone)
		case m.d == nil && time.Now().Before(m.again):
			return nil, m.err
		}
		return m.d, nil
	}
	if d, err := look(); d != nil || err != nil {
		return d, err
	}
	if !m.one.TryLock() { // nobody waits for another's attempt
		return nil, fmt.Errorf("the server is being connected to: %w", driver.ErrNotDone)
	}
	defer m.one.Unlock()
	if d, err := look(); d != nil || err != nil {
		return d, err
	}
	d, err := m.open(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.err, m.again = fmt.Errorf("%w: %w", driver.ErrNotDone, err), time.Now().Add(memberPause)
		return nil, m.err
	}
	if m.closed {
		d.Close()
		return nil, fmt.Errorf("%w: %w", driver.ErrClosed, driver.ErrNotDone)
	}
	m.d = d
	return d, nil
}

func (m *member) Close() error {
	m.mu.Lock()
	m.closed = true
	d := m.d
	m.mu.Unlock()
	if d == nil {
		return nil
	}
	return d.Close()
}

func (m *member) Enter(_ context.Context, r driver.Request) (driver.Place, error) {
	return &memberPlace{m: m, r: r}, nil
}

// memberPlace enters its server when it first tries.
type memberPlace struct {
	m *member
	r driver.Request
	p driver.Place
}

func (p *memberPlace) Try(ctx context.Context, span int) (driver.Grant, error) {
	if p.p == nil {
		d, err := p.m.get(ctx)
		if err != nil {
			return driver.Grant{}, err
		}
		if p.p, err = d.Enter(ctx, p.r); err != nil {
			p.p = nil
			return driver.Grant{}, err
		}
	}
	return p.p.Try(ctx, span)
}

func (p *memberPlace) Leave(ctx context.Context) error {
	if p.p == nil {
		return nil
	}
	return p.p.Leave(ctx)
}

func (m *member) Renew(ctx context.Context, hs []driver.Hold) []error {
	d, err := m.get(ctx)
	if err == nil {
		return d.Renew(ctx, hs)
	}
	errs := make([]error, len(hs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (m *member) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	d, err := m.get(ctx)
	if err != nil {
		return err
	}
	return d.Release(ctx, h, end)
}

func (m *member) Raise(ctx context.Context, h driver.Hold, token int64) error {
	d, err := m.get(ctx)
	if err != nil {
		return err
	}
	return d.Raise(ctx, h, token)
}

func (m *member) Incarnation(ctx context.Context) (string, time.Duration, error) {
	d, err := m.get(ctx)
	if err != nil {
		return "", 0, err
	}
	return d.Incarnation(ctx)
}

func (m *member) Survey(ctx context.Context) (driver.Survey, error) {
	d, err := m.get(ctx)
	if err != nil {
		return driver.Survey{}, err
	}
	return d.Survey(ctx)
}

func (m *member) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	d, err := m.get(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	return d.Attach(ctx, r)
}

func (m *member) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	d, err := m.get(ctx)
	if err != nil {
		return nil, err
	}
	return d.Watch(ctx, name)
}

func (m *member) Inspect(ctx context.Context, name string) (driver.Record, error) {
	d, err := m.get(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	return d.Inspect(ctx, name)
}

func (m *member) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	d, err := m.get(ctx)
	if err != nil {
		return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, err) }
	}
	return d.List(ctx, prefix)
}
