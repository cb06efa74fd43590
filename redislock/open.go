package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
)

// Open connects to a server and makes a driver that owns the connection: Close ends it. The URL is one of
//
//	redis://[user:password@]host[:port][/db]
//	rediss://…                                 the same over TLS
//	unix:///path/to/socket[?db=n]              or redis+unix:, with user:password@ before the path if need be
//	redis+sentinel://[user:password@]host[:port],host[:port]…/primary[?db=n]    Sentinels, and the name of what they watch
//	rediss+sentinel://…                        the same over TLS, to the Sentinels too
//	redis+cluster://[user:password@]host[:port],host[:port]…     some nodes of a Redis Cluster; rediss+cluster over TLS
//
// Sentinels that want a password get it from the parameters sentinel_user and sentinel_password, and listen on port 26379
// by default.
//
// Open asks the server who it is, and fails for one that does not answer, wants another password, is older than Redis 6.2,
// is a read-only replica, or something else than the URL's scheme says. ctx bounds Open only. No error shows a password.
//
// Each URL may have the parameter layout=redisson, which Open takes, or layout=string, which [OpenPlain] does.
func Open(ctx context.Context, rawURL string, opts *Options) (*Driver, error) {
	return openLayout(ctx, rawURL, layoutRedisson, opts)
}

// The layouts, as a URL's parameter names them.
const (
	layoutRedisson = "redisson"
	layoutString   = "string"
)

func openLayout(ctx context.Context, rawURL, layout string, opts *Options) (*Driver, error) {
	co, err := parse(rawURL, layout)
	if err != nil {
		return nil, err
	}
	where := strings.Join(co.InitAddress, ", ")
	life, end := context.WithCancel(context.Background())
	o := &opening{life: life, ctx: ctx}
	co.DialCtxFn = o.dial
	client, err := rueidis.NewClient(co)
	clustered := err == nil && client.Mode() == rueidis.ClientModeCluster
	switch {
	case err != nil:
	case co.Sentinel.MasterSet == "" && clustered == co.ForceSingleClient:
		err = errSingle
	default:
		err = fit(ctx, client, clustered)
	}
	o.over()
	if err != nil {
		end()
		if client != nil {
			client.Close()
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("redis at %s: %w", where, explain(err))
	}
	own := dedicate(client)
	if co.ForceSingleClient { // others dial by themselves too, so that the last one dialed may be somebody else's
		plain := client
		own = func() dedicated { return o.dedicate(plain) }
		client = &waiting{plain, &o.one}
	}
	d := overRueidis(client, own, opts)
	d.own, d.stop = true, end
	if d.bad != nil {
		d.Close()
		return nil, d.bad
	}
	d.findScripts(ctx)
	if clustered {
		return d, nil
	}
	if _, err := d.lanes.lanes[0].connect(); err != nil {
		d.Close()
		return nil, fmt.Errorf("redis at %s: %w", where, err)
	}
	return d, nil
}

// explain says in words what is wrong with a server.
func explain(err error) error {
	if r, ok := rueidis.IsRedisErr(err); ok {
		if what, ok := refusals[code(r.Error())]; ok {
			return fmt.Errorf("%s (%s)", what, code(r.Error()))
		}
	}
	switch text := err.Error(); {
	case strings.Contains(text, "unknown message type"):
		return fmt.Errorf("this is no Redis server: %w", err)
	case strings.Contains(text, "cluster support disabled"):
		return errSingle
	case strings.Contains(text, "No such master"):
		return fmt.Errorf("the Sentinels watch nothing of that name: %w", driver.ErrInvalid)
	case strings.Contains(strings.ToLower(text), "unknown command 'sentinel'"):
		return fmt.Errorf("this is no Sentinel; for a server write redis://host[:port][/db]: %w", driver.ErrInvalid)
	}
	return err
}

// opening dials for a client of Open: within Open's ctx at first, and while the driver lives later.
type opening struct {
	life context.Context

	mu    sync.Mutex
	ctx   context.Context // of Open; nil once it is over
	stops []func() bool
	last  net.Conn // the last one dialed

	one sync.RWMutex // held while a connection is made whose net.Conn is wanted, and read-held while any other one is
}

// waiting is a client that makes no connection for a session while opening.dedicate makes one: that would take it for its own,
// and later cut it in the middle of what it does.
type waiting struct {
	rueidis.Client
	one *sync.RWMutex
}

func (c *waiting) Dedicate() (rueidis.DedicatedClient, func()) {
	c.one.RLock()
	defer c.one.RUnlock()
	return c.Client.Dedicate()
}

// dedicate makes a connection and finds out what is under it.
func (o *opening) dedicate(client rueidis.Client) dedicated {
	o.one.Lock()
	defer o.one.Unlock()
	o.mu.Lock()
	o.last = nil
	o.mu.Unlock()
	d := dedicate(client)()
	o.mu.Lock()
	defer o.mu.Unlock()
	d.raw, o.last = o.last, nil
	return d
}

func (o *opening) dial(dial context.Context, addr string, dialer *net.Dialer, tlsConfig *tls.Config) (net.Conn, error) {
	dial, cancel := context.WithCancel(dial)
	defer cancel()
	defer context.AfterFunc(o.life, cancel)()
	o.mu.Lock()
	first := o.ctx
	o.mu.Unlock()
	if first != nil {
		defer context.AfterFunc(first, cancel)()
	}
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	conn, err := dialer.DialContext(dial, network, addr)
	if err != nil {
		return nil, err
	}
	if tlsConfig != nil {
		if tlsConfig.ServerName == "" {
			tlsConfig = tlsConfig.Clone()
			tlsConfig.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(conn, tlsConfig)
		hands, cancel := context.WithTimeout(dial, dialer.Timeout)
		defer cancel()
		if err := secure.HandshakeContext(hands); err != nil {
			conn.Close()
			return nil, fmt.Errorf("TLS handshake (does it speak TLS on this port?): %w", err)
		}
		conn = secure
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = conn
	if first != nil { // rueidis does not bound the first words by Open's ctx
		o.stops = append(o.stops, context.AfterFunc(first, func() { conn.Close() }))
	}
	return conn, nil
}

func (o *opening) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx = nil
	for _, stop := range o.stops {
		stop()
	}
	o.stops = nil
}

// parse reads a URL of that layout. Its errors do not repeat it.
func parse(raw, layout string) (rueidis.ClientOption, error) {
	co := rueidis.ClientOption{
		// A connection that is silent for this long is given up.
		ConnWriteTimeout: 2 * maxLimit,
		Dialer:           net.Dialer{Timeout: maxLimit, KeepAlive: 15 * time.Second},
		// Only pawl's client knows what may be repeated.
		DisableRetry:      true,
		DisableCache:      true,
		ForceSingleClient: true,
		PipelineMultiplex: -1,
		// A pipeline of a lane takes about 15 KB, rarely more.
		ReadBufferEachConn:  1 << 14,
		WriteBufferEachConn: 1 << 14,
		RingScaleEachConn:   6, // a lane has no use for it
		ClientSetInfo:       []string{"pawl", "1"},
	}
	one, more := severalHosts(raw)
	u, err := url.Parse(one)
	if err != nil {
		return co, invalid("this is no URL of a Redis server (is a special character of the password not percent-encoded?); write redis://[user:password@]host[:port][/db]")
	}
	if u.User != nil {
		co.Username = u.User.Username()
		co.Password, _ = u.User.Password()
		if co.Password == "" {
			return co, invalid("the URL names a user but no password")
		}
	}
	if len(more) > 0 && !strings.Contains(u.Scheme, "+") {
		return co, invalid("the URL names several hosts; write redis+sentinel://host,host/primary for Sentinels, redis+cluster://host,host for a cluster")
	}
	db := strings.Trim(u.Path, "/")
	query := u.Query()
	switch u.Scheme {
	case "redis", "rediss":
		if u.Hostname() == "" {
			return co, invalid("the URL names no host; write %s://host[:port][/db]", u.Scheme)
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		co.InitAddress = []string{net.JoinHostPort(u.Hostname(), port)}
		if u.Scheme == "rediss" {
			co.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
		}
	case "unix", "redis+unix":
		if !strings.HasPrefix(u.Path, "/") {
			return co, invalid("the URL names no absolute path of a socket; write %s:///path/to/socket[?db=n]", u.Scheme)
		}
		co.InitAddress = []string{u.Path}
		db = query.Get("db")
		query.Del("db")
	case "redis+sentinel", "rediss+sentinel":
		if db == "" || strings.Contains(db, "/") {
			return co, invalid("the URL does not name what the Sentinels watch; write %s://host[:port],host[:port]/primary[?db=n]", u.Scheme)
		}
		if co.InitAddress, err = addresses(u, more, "26379"); err != nil {
			return co, err
		}
		co.ForceSingleClient = false
		// While rueidis asks a primary that does not answer for its role, it hears of no other.
		co.ConnWriteTimeout = 2 * time.Second
		co.Sentinel = rueidis.SentinelOption{
			MasterSet: db, Dialer: co.Dialer, TopologyRefreshInterval: 5 * time.Second,
			Username: query.Get("sentinel_user"), Password: query.Get("sentinel_password"),
		}
		if u.Scheme == "rediss+sentinel" { // each server's certificate is for its own name
			co.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
			co.Sentinel.TLSConfig = co.TLSConfig
		}
		db = query.Get("db")
		query.Del("db")
		query.Del("sentinel_user")
		query.Del("sentinel_password")
	case "redis+cluster", "rediss+cluster":
		if db != "" {
			return co, invalid("a Redis Cluster has one database, and the URL names another; write %s://host[:port],host[:port]", u.Scheme)
		}
		if co.InitAddress, err = addresses(u, more, "6379"); err != nil {
			return co, err
		}
		co.ForceSingleClient = false
		// A node that is silent for this long is given up; the others go on meanwhile.
		co.ConnWriteTimeout, co.Dialer.KeepAlive = maxLimit, maxLimit
		co.RingScaleEachConn = 8 // all requests to a node share its connection
		co.ClusterOption = rueidis.ClusterOption{ShardsRefreshInterval: 10 * time.Second, MaxMovedRedirections: 8}
		if u.Scheme == "rediss+cluster" { // each server's certificate is for its own name
			co.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	default:
		return co, invalid("redislock cannot open a URL of scheme %q; it knows redis, rediss, unix, redis+unix, redis+sentinel, redis+cluster, and the last two with rediss", u.Scheme)
	}
	if want, there := query["layout"]; there {
		switch query.Del("layout"); {
		case len(want) == 1 && want[0] == layout:
		case len(want) == 1 && want[0] == layoutString:
			return co, invalid("the URL says layout=string, which is opened by OpenPlain; Open keeps locks in the layout of Redisson")
		case len(want) == 1 && want[0] == layoutRedisson:
			return co, invalid("the URL says layout=redisson, which is opened by Open; OpenPlain keeps locks as plain strings")
		default:
			return co, invalid("the layout in the URL should be redisson or string")
		}
	}
	if len(query) > 0 || u.Fragment != "" {
		return co, invalid("the URL has parameters that redislock does not know")
	}
	if db != "" {
		n, err := strconv.Atoi(db)
		if err != nil || n < 0 {
			return co, invalid("the database in the URL should be a number, not %q", db)
		}
		co.SelectDB = n
	}
	return co, nil
}

// severalHosts separates a list of hosts: it answers the URL with the first one, and the others.
func severalHosts(raw string) (one string, more []string) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw, nil
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	begin := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := strings.Split(rest[begin:end], ",")
	return scheme + "://" + rest[:begin] + hosts[0] + rest[end:], hosts[1:]
}

// addresses are the first host, which is the URL's, and the others.
func addresses(u *url.URL, more []string, port string) ([]string, error) {
	var out []string
	for i, host := range append([]string{u.Host}, more...) {
		h, err := url.Parse("//" + host)
		if err != nil || h.Hostname() == "" || h.Host != host {
			return nil, invalid("host number %d of the URL is no host[:port]", i+1)
		}
		p := h.Port()
		if p == "" {
			p = port
		}
		out = append(out, net.JoinHostPort(h.Hostname(), p))
	}
	return out, nil
}

// fit says whether the server, or a node of the cluster, can keep locks.
func fit(ctx context.Context, client rueidis.Client, clustered bool) error {
	facts, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		if r, ok := rueidis.IsRedisErr(err); ok && strings.Contains(strings.ToLower(r.Error()), "unknown command") {
			return fmt.Errorf("the server is too old: locks need Redis 6.2 or Valkey: %w", driver.ErrInvalid)
		}
		return err
	}
	fact := func(name string) string {
		m := facts[name]
		s, _ := m.ToString()
		return s
	}
	if v := fact("version"); !recent(v) {
		return fmt.Errorf("the server's version %s is too old: locks need Redis 6.2 or Valkey: %w", v, driver.ErrInvalid)
	}
	if fact("mode") == "sentinel" {
		return fmt.Errorf("the server is a Sentinel; write redis+sentinel://host[:port],host[:port]/primary: %w", driver.ErrInvalid)
	}
	if fact("role") != "master" && !clustered {
		return fmt.Errorf("the server is a read-only replica; locks need the primary: %w", driver.ErrInvalid)
	}
	if fact("mode") == "cluster" && !clustered {
		return fmt.Errorf("the server is a node of a Redis Cluster; write redis+cluster://host[:port],host[:port], or give a cluster client to New: %w", driver.ErrInvalid)
	}
	return client.Do(ctx, client.B().Ping().Build()).Error()
}

func recent(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return errors.Join(err, err2) == nil && (a > 6 || a == 6 && b >= 2)
}
