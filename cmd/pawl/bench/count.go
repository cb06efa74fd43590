package bench

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	"github.com/redis/rueidis"
)

// counts is what a store's own counters say. -1: not known.
type counts struct {
	commands int64 // that clients sent
	bytes    int64 // both ways
	cpu      int64 // of the server, in nanoseconds
}

var unknown = counts{-1, -1, -1}

func (c *counts) add(o counts) {
	sum := func(a, b int64) int64 {
		if a < 0 || b < 0 {
			return -1
		}
		return a + b
	}
	c.commands, c.bytes, c.cpu = sum(c.commands, o.commands), sum(c.bytes, o.bytes), sum(c.cpu, o.cpu)
}

// counter reads the counters of a store.
type counter interface {
	read(ctx context.Context) (counts, error)
	close()
}

// uncounted is a store that does not count.
type uncounted struct{}

func (uncounted) read(context.Context) (counts, error) { return unknown, nil }
func (uncounted) close()                               {}

// several servers are one store.
type several []counter

func (s several) read(ctx context.Context) (sum counts, err error) {
	for _, c := range s {
		n, err := c.read(ctx)
		if err != nil {
			return unknown, fmt.Errorf("the store's counters: %w", err)
		}
		sum.add(n)
	}
	return sum, nil
}

func (s several) close() {
	for _, c := range s {
		c.close()
	}
}

func newCounter(ctx context.Context, t Target, limit time.Duration) (counter, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	urls := t.Count
	if urls == nil {
		urls = []string{t.URL}
	}
	var all several
	for _, raw := range urls {
		cs, err := openCounters(ctx, raw, t.Sends)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, cs...)
	}
	return all, nil
}

// openCounters knows the stores by the scheme of their URLs.
func openCounters(ctx context.Context, raw string, sends []string) ([]counter, error) {
	scheme, rest, _ := strings.Cut(raw, ":")
	var out []counter
	each := func(open func(host string) (counter, error), port string) ([]counter, error) {
		for _, host := range strings.Split(hosts(rest), ",") {
			if _, _, err := net.SplitHostPort(host); err != nil {
				host = net.JoinHostPort(host, port)
			}
			c, err := open(host)
			if err != nil {
				several(out).close()
				return nil, err
			}
			out = append(out, c)
		}
		return out, nil
	}
	switch strings.ToLower(scheme) {
	case "redis", "rediss", "unix":
		c, err := openRedisCounter(raw, sends)
		return []counter{c}, err
	case "redis+unix":
		c, err := openRedisCounter(strings.TrimPrefix(raw, "redis+"), sends)
		return []counter{c}, err
	case "redlock":
		return each(func(host string) (counter, error) {
			return openRedisCounter("redis://"+user(rest)+host, sends)
		}, "6379")
	case "etcd":
		return each(func(host string) (counter, error) { return etcdCounter(host), nil }, "2379")
	case "zk", "zookeeper":
		return each(func(host string) (counter, error) { return zooCounter(host), nil }, "2181")
	case "mysql", "mariadb":
		c, err := openMySQLCounter(ctx, raw)
		return []counter{c}, err
	case "postgres", "postgresql":
		c, err := openPostgresCounter(ctx, raw)
		return []counter{c}, err
	}
	return []counter{uncounted{}}, nil
}

// authority is the part of a URL, behind its scheme, that names the user and the hosts.
func authority(rest string) string {
	rest = strings.TrimPrefix(rest, "//")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

func hosts(rest string) string {
	a := authority(rest)
	return a[strings.LastIndexByte(a, '@')+1:]
}

// user is "user:password@", or nothing.
func user(rest string) string {
	a := authority(rest)
	return a[:strings.LastIndexByte(a, '@')+1]
}

// redisCounter connects for each look: a connection that stays sends PINGs, which would count.
type redisCounter struct {
	option rueidis.ClientOption
	sends  []string
}

func openRedisCounter(raw string, sends []string) (counter, error) {
	o, err := rueidis.ParseURL(raw)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	o.DisableCache, o.ForceSingleClient = true, true
	return redisCounter{o, sends}, nil
}

func (redisCounter) close() {}

// sent are commands that clients of locks send, and that scripts cannot call. The names of others that a client sends are
// in Target.Sends: Redis counts what scripts call in the same way.
var sent = map[string]bool{
	"evalsha": true, "eval": true, "evalsha_ro": true, "eval_ro": true, "fcall": true, "fcall_ro": true, "script|load": true,
	"ping": true, "subscribe": true, "ssubscribe": true, "psubscribe": true, "unsubscribe": true, "sunsubscribe": true, "wait": true,
}

func (r redisCounter) read(ctx context.Context) (counts, error) {
	client, err := rueidis.NewClient(r.option)
	if err != nil {
		return unknown, err
	}
	defer client.Close()
	text, err := client.Do(ctx, client.B().Info().Section("commandstats", "stats", "cpu").Build()).ToString()
	if err != nil {
		return unknown, err
	}
	var c counts
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch command, ok := strings.CutPrefix(name, "cmdstat_"); {
		case ok && (sent[command] || slices.Contains(r.sends, command)): // calls=12,usec=…
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return unknown, fmt.Errorf("INFO commandstats: %q: %w", line, err)
			}
			c.commands += n
		case name == "total_net_input_bytes", name == "total_net_output_bytes":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return unknown, fmt.Errorf("INFO stats: %q: %w", line, err)
			}
			c.bytes += n
		case name == "used_cpu_sys", name == "used_cpu_user":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return unknown, fmt.Errorf("INFO cpu: %q: %w", line, err)
			}
			c.cpu += int64(seconds * 1e9)
		}
	}
	return c, nil
}

// etcdCounter is the client address of a member.
type etcdCounter string

func (etcdCounter) close() {}

func (e etcdCounter) read(ctx context.Context) (counts, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+string(e)+"/metrics", nil)
	if err != nil {
		return unknown, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return unknown, err
	}
	defer resp.Body.Close()
	c := unknown
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "grpc_server_msg_received_total": // of streams each message
			c.commands = max(c.commands, 0) + int64(n)
		case "process_cpu_seconds_total":
			c.cpu = int64(n * 1e9)
		case "etcd_network_client_grpc_received_bytes_total", "etcd_network_client_grpc_sent_bytes_total":
			c.bytes = max(c.bytes, 0) + int64(n)
		}
	}
	return c, nil
}

// zooCounter is the client address of a server, which must answer the four-letter word mntr or srvr.
type zooCounter string

func (zooCounter) close() {}

func (z zooCounter) read(ctx context.Context) (counts, error) {
	c := unknown
	for _, word := range []string{"mntr", "srvr"} {
		text, err := z.ask(ctx, word)
		if err != nil {
			return c, err
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if n, v, ok := strings.Cut(line, ": "); word == "srvr" && ok {
				name, value = n, strings.TrimSpace(v)
			}
			switch name {
			case "zk_packets_received", "Received":
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return c, fmt.Errorf("%s: %q: %w", word, line, err)
				}
				c.commands = int64(n)
			}
		}
		if c.commands >= 0 {
			break
		}
	}
	return c, nil
}

func (z zooCounter) ask(ctx context.Context, word string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", string(z))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// sqlCounter asks a database. Its own questions are taken off.
type sqlCounter struct {
	db    *sql.DB
	ask   func(ctx context.Context, db *sql.DB) (counts, error)
	asked int64
}

func (s *sqlCounter) close() { s.db.Close() }

func (s *sqlCounter) read(ctx context.Context) (counts, error) {
	c, err := s.ask(ctx, s.db)
	if err != nil {
		return unknown, err
	}
	if c.commands >= 0 {
		c.commands -= s.asked
	}
	s.asked++
	return c, nil
}

func openMySQLCounter(ctx context.Context, raw string) (counter, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.InterpolateParams = u.User.Username(), "tcp", u.Host, true
	cfg.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return &sqlCounter{db: db, ask: func(ctx context.Context, db *sql.DB) (counts, error) {
		rows, err := db.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Bytes_received', 'Bytes_sent')")
		if err != nil {
			return unknown, err
		}
		defer rows.Close()
		c := counts{cpu: -1}
		for rows.Next() {
			var name string
			var n int64
			if err := rows.Scan(&name, &n); err != nil {
				return unknown, err
			}
			if name == "Questions" {
				c.commands = n
			} else {
				c.bytes += n
			}
		}
		return c, rows.Err()
	}}, db.PingContext(ctx)
}

// openPostgresCounter counts statements if the extension pg_stat_statements is there; what else PostgreSQL counts it tells
// only now and then.
func openPostgresCounter(ctx context.Context, raw string) (counter, error) {
	db, err := sql.Open("pgx", raw)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	db.SetMaxOpenConns(1)
	const statements = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements"
	var n int64
	if err := db.QueryRowContext(ctx, statements).Scan(&n); err != nil {
		db.Close()
		if ctx.Err() != nil {
			return nil, err
		}
		return uncounted{}, nil
	}
	return &sqlCounter{db: db, ask: func(ctx context.Context, db *sql.DB) (counts, error) {
		c := unknown
		err := db.QueryRowContext(ctx, statements).Scan(&c.commands)
		return c, err
	}}, nil
}
