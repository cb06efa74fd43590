package zklock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	defaultSession = 30 * time.Second
	defaultPort    = "2181"
)

// Open connects to an ensemble and makes a driver that owns the connection: Close ends it. The URL is
//
//	zookeeper://[user:password@]host[:port][,host[:port]…][/root][?timeout=30s]      or zk:
//
// A user and password are digest credentials. timeout is Options.SessionTimeout. The root is where the locks are; it is
// made when it does not exist, so a root that is missing and may not be made is an error of the first Lock and names it.
//
// Open waits for a session, and then for the answer whether the root may be read. ctx bounds Open only: when it ends, the
// error says of each server what was wrong with it. No error shows the password.
func Open(ctx context.Context, rawURL string, opts *Options) (*Driver, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	servers, user, err := parseURL(rawURL, &o)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("zookeeper at %s: %w", strings.Join(servers, ","), context.Cause(ctx))
	}
	w := newWire(servers, o.TLS, o.SessionTimeout)
	if user != "" {
		w.creds = 1
	}
	conn, events, err := zk.Connect(servers, o.SessionTimeout, zk.WithDialer(w.dial), zk.WithHostProvider(w), zk.WithLogger(w), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	w.drained.Go(func() { // ends when the library has stopped
		for range events {
		}
	})
	fail := func(err error) (*Driver, error) {
		if ctx.Err() != nil {
			err = errors.Join(err, w.examine(servers))
		}
		w.close(conn, conn.State() == zk.StateHasSession)
		return nil, fmt.Errorf("zookeeper at %s: %w", strings.Join(servers, ","), err)
	}
	if user != "" {
		_, err := read(ctx, func() (struct{}, error) { return struct{}{}, conn.AddAuth("digest", []byte(user)) })
		if err != nil {
			return fail(err)
		}
	}
	d := New(conn, &o)
	d.wire, d.where = w, strings.Join(slices.Compact(slices.Sorted(slices.Values(servers))), ",")
	w.watching.Store(&d.hub)
	if d.bad != nil {
		w.close(conn, true)
		return nil, d.bad
	}
	// A read of the root, and not only a connection: a server that has no quorum may still take connections.
	root := d.root
	if root == "" {
		root = "/"
	}
	_, err = read(ctx, func() (listing, error) { return d.children(root) })
	if err != nil {
		return fail(describe("list", root, err))
	}
	return d, nil
}

// examine asks each server what is wrong with it.
func (w *wire) examine(servers []string) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = fmt.Errorf("%s: %w", s, w.ask(s)) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ask talks to a server without a session, by the one command that all of them answer.
func (w *wire) ask(server string) error {
	const patience = 300 * time.Millisecond
	conn, err := w.connect(server, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, err := io.ReadFull(conn, answer)
	text := string(answer[:n])
	switch {
	case strings.Contains(text, "Mode: read-only"):
		return errors.New("the server has lost its quorum and is read-only: locks need the majority")
	case strings.Contains(text, "not currently serving"):
		return errors.New("the server runs but is not part of a quorum")
	case n == 0 && err != nil:
		return errors.New("the server took the connection but did not answer")
	}
	return errors.New("the server answers, but gave no session in time")
}

// parseURL reads a URL into servers, credentials and options. Its errors do not repeat it.
func parseURL(raw string, o *Options) (servers []string, user string, err error) {
	const form = "write zookeeper://[user:password@]host[:port][,host[:port]…][/root]"
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "zookeeper" && scheme != "zk" {
		return nil, "", invalid("this is no URL of a ZooKeeper ensemble; %s", form)
	}
	// Not url.Parse for all of it: several hosts with ports are no authority of RFC 3986.
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, rooted := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		if user, err = url.PathUnescape(hosts[:i]); err != nil || !strings.Contains(user, ":") {
			return nil, "", invalid("the URL's credentials are not user:password, with special characters percent-encoded")
		}
		hosts = hosts[i+1:]
	}
	for _, h := range strings.Split(hosts, ",") {
		host, port := h, defaultPort
		if i := strings.LastIndexByte(h, ':'); i >= 0 && !strings.HasSuffix(h, "]") {
			host, port = h[:i], h[i+1:]
		}
		host = strings.Trim(host, "[]")
		if host == "" || port == "" || strings.Trim(port, "0123456789") != "" {
			return nil, "", invalid("the URL has a server that is not host or host:port; %s", form)
		}
		servers = append(servers, net.JoinHostPort(host, port))
	}
	if rooted {
		if path, err = url.PathUnescape(path); err != nil {
			return nil, "", invalid("the URL's path is not percent-encoded well; %s", form)
		}
		if strings.Trim(path, "/") != "" {
			o.Root = "/" + path
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, "", invalid("the URL's parameters cannot be read")
	}
	if t := values.Get("timeout"); t != "" {
		if o.SessionTimeout, err = time.ParseDuration(t); err != nil || o.SessionTimeout <= 0 {
			return nil, "", invalid("the URL's timeout is a duration such as 30s, not %q", t)
		}
		values.Del("timeout")
	}
	if len(values) > 0 {
		return nil, "", invalid("the URL has parameters that zklock does not know")
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = defaultSession
	}
	if o.SessionTimeout < time.Millisecond {
		return nil, "", invalid("Options.SessionTimeout is %v, below 1ms: is a unit missing?", o.SessionTimeout)
	}
	if _, err := cleanRoot(o.Root); err != nil {
		return nil, "", err
	}
	return servers, user, nil
}
