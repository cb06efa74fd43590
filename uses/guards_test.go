package uses

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
	"github.com/pawl-lock/pawl/redislock/redisfence"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

// shop is where the guarded numbers are: in a database, in a Redis, and in a process that is asked by HTTP. They are the same for all backends
// of the locks, each of which has numbers of its own.
type shop struct {
	sqlDriver, dsn string
	redis          string
	web            string
	db             *sql.DB
}

const inStock = 100

// resource is a guarded number. Both methods claim.
type resource interface {
	read(ctx context.Context, l fence.Lease) (int, error)
	write(ctx context.Context, l fence.Lease, n int) error
}

func startShop(t *testing.T) *shop {
	p := sqltest.StartPostgres(t)
	s := &shop{sqlDriver: p.Driver, dsn: p.DSN, redis: redistest.Start(t).Addr, db: p.DB()}
	marks, err := fence.Table{Dialect: fence.PostgreSQL}.CreateTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{marks, "CREATE TABLE stock (item TEXT PRIMARY KEY, n INT NOT NULL)"} {
		if _, err := s.db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	var gate fence.Gate
	var mu sync.Mutex
	stock := map[string]string{}
	web := httptest.NewServer(&fence.Handler{
		Guard:    gate.Guard(),
		Resource: func(r *http.Request) string { return r.URL.Path },
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Method == http.MethodPut {
				b, _ := io.ReadAll(r.Body)
				stock[r.URL.Path] = string(b)
			}
			if stock[r.URL.Path] == "" {
				stock[r.URL.Path] = strconv.Itoa(inStock)
			}
			io.WriteString(w, stock[r.URL.Path])
		}),
	})
	t.Cleanup(web.Close)
	s.web = web.URL
	return s
}

// shop lets the backend's processes find the shop.
func (b *backend) shop(s *shop) { b.shopAt = s }

// resources are those of an item, as a process reaches them.
func resources(sqlDriver, dsn, redis, web, item string) (map[string]resource, func(), error) {
	db, err := sql.Open(sqlDriver, dsn)
	if err != nil {
		return nil, nil, err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis}, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	return map[string]resource{
		"sql":   inSQL{db, item},
		"redis": inRedis{client, redisfence.New(client, nil), item},
		"http":  overHTTP{web + "/" + item},
	}, func() { db.Close(); client.Close() }, nil
}

type inSQL struct {
	db   *sql.DB
	item string
}

func (s inSQL) claimed(ctx context.Context, l fence.Lease, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := (fence.Table{Dialect: fence.PostgreSQL}).Claim(ctx, tx, s.item, l); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s inSQL) read(ctx context.Context, l fence.Lease) (n int, err error) {
	err = s.claimed(ctx, l, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO stock VALUES ($1, $2) ON CONFLICT DO NOTHING", s.item, inStock); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT n FROM stock WHERE item = $1", s.item).Scan(&n)
	})
	return n, err
}

func (s inSQL) write(ctx context.Context, l fence.Lease, n int) error {
	return s.claimed(ctx, l, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET n = $1 WHERE item = $2", n, s.item)
		return err
	})
}

type inRedis struct {
	client rueidis.Client
	guard  *redisfence.Guard
	item   string
}

var (
	getStock = redisfence.NewScript(`redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])`)
	setStock = redisfence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
)

func (r inRedis) read(ctx context.Context, l fence.Lease) (int, error) {
	text, err := getStock.Exec(ctx, r.guard, r.item, l, []string{"stock:" + r.item}, []string{strconv.Itoa(inStock)}).ToString()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (r inRedis) write(ctx context.Context, l fence.Lease, n int) error {
	return setStock.Exec(ctx, r.guard, r.item, l, []string{"stock:" + r.item}, []string{strconv.Itoa(n)}).Error()
}

type overHTTP struct{ url string }

func (h overHTTP) do(ctx context.Context, l fence.Lease, method, body string) (string, error) {
	r, err := http.NewRequestWithContext(fence.WithLease(ctx, l), method, h.url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &fence.Transport{}}).Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusPreconditionFailed {
		err = fence.ErrStale
	}
	return string(b), err
}

func (h overHTTP) read(ctx context.Context, l fence.Lease) (int, error) {
	text, err := h.do(ctx, l, http.MethodGet, "")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (h overHTTP) write(ctx context.Context, l fence.Lease, n int) error {
	_, err := h.do(ctx, l, http.MethodPut, strconv.Itoa(n))
	return err
}

// guardsProcess takes the lock, reads all numbers, says so, waits to be told, and writes each less what it is told to sell. It looks at its lease
// once, when it gets it, as one does that is paused between its last look and its write.
func guardsProcess(w *worker) error {
	item := w.args[4]
	all, end, err := resources(w.args[0], w.args[1], w.args[2], w.args[3], item)
	if err != nil {
		return err
	}
	defer end()
	locks, err := w.open(ttl)
	if err != nil {
		return err
	}
	w.say("ready to go")
	w.told()
	ctx := context.Background()
	lease, err := w.lock(locks.Mutex(item))
	if err != nil {
		return err
	}
	l := guardtest.Freeze(lease)
	was := map[string]int{}
	for name, r := range all {
		if was[name], err = r.read(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	w.say("read %d", l.Token())
	text, _ := w.told()
	n, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	for name, r := range all {
		switch err := r.write(ctx, l, was[name]-n); {
		case errors.Is(err, fence.ErrStale):
			w.say("stale %s", name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		default:
			w.say("wrote %s", name)
		}
	}
	lease.Unlock()
	w.say("done now")
	w.told()
	return locks.Close()
}

// guards: a process reads under the lock and is stopped until its lease has run out. Another one reads; only then the first goes on and
// writes, and every guard refuses it. The second writes, and the numbers are what it has computed.
func guards(t *testing.T, b *backend) {
	t.Run("memory", func(t *testing.T) { gateGuards(t, b) })
	if b.memory != nil {
		return // goroutines cannot be stopped
	}
	s, item := b.shopAt, "phone-"+b.name
	ps := b.processes(t, 2, "guards", s.sqlDriver, s.dsn, s.redis, s.web, item)
	for _, p := range ps {
		p.await(0, "ready")
	}
	slow, quick := ps[0], ps[1]
	slow.tell("lock")
	token := slow.await(0, "read").number(1)
	slow.stop()
	quick.tell("lock")
	if next := quick.await(0, "read").number(1); next <= token {
		t.Errorf("the token %d is followed by %d", token, next)
	}
	slow.cont()
	slow.tell("1")
	slow.await(0, "done")
	quick.tell("10")
	quick.await(0, "done")
	all, end, err := resources(s.sqlDriver, s.dsn, s.redis, s.web, item)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	locks, err := open(b.url, b.memory, pawl.Options{TTL: longTTL})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	err = locks.Mutex(item).Do(t.Context(), func(ctx context.Context) error {
		for name, r := range all {
			slow.await(0, "stale", name)
			quick.await(0, "wrote", name)
			if n, err := r.read(ctx, pawl.FromContext(ctx, item)); err != nil || n != inStock-10 {
				t.Errorf("%s: %d, %v, want %d", name, n, err, inStock-10)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	slow.finish()
	quick.finish()
}

// gateGuards is the same for a number in this process, whose holders are two clients here: the slow one does not renew.
func gateGuards(t *testing.T, b *backend) {
	var gate fence.Gate
	stock := inStock
	sell := func(l fence.Lease, read, n int) error {
		if err := gate.Claim("phone", l); err != nil {
			return err
		}
		stock = read - n
		return nil
	}
	var two []*pawl.Client
	for _, o := range []pawl.Options{{NoKeepalive: true}, {TTL: longTTL}} {
		c, err := open(b.url, b.memory, o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		two = append(two, c)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var slow *pawl.Lease
	for slow == nil || slow.Err() != nil { // a store may take longer than a TTL once
		l, err := two[0].Mutex("gate").Lock(ctx)
		if err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
		slow = l
	}
	asleep := guardtest.Freeze(slow)
	if err := gate.Claim("phone", asleep); err != nil {
		t.Fatal(err)
	}
	read := stock
	begin := time.Now()
	quick, err := two[1].Mutex("gate").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Unlock()
	if err := gate.Claim("phone", quick); err != nil {
		t.Fatalf("the next holder, after %v: %v", time.Since(begin), err)
	}
	mine := stock
	if err := sell(asleep, read, 1); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the late write: got %v, want ErrStale", err)
	}
	if err := sell(quick, mine, 10); err != nil || stock != inStock-10 {
		t.Errorf("the next holder's: %v, %d in stock", err, stock)
	}
}
