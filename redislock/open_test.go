package redislock_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

const secret = "s3same&open"

func TestOpen(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	do(t, raw, "ACL", "SETUSER", "worker", "on", ">"+secret, "~*", "&*", "+@all")
	do(t, raw, "CONFIG", "SET", "requirepass", secret)
	do(t, raw, "AUTH", secret)
	user := url.UserPassword("worker", secret).String()
	pass := url.UserPassword("", secret).String()
	for _, u := range []string{
		"redis://" + user + "@" + s.Addr,
		"redis://" + pass + "@" + s.Addr + "/3",
		"unix://" + user + "@" + s.Socket + "?db=3",
		"redis+unix://" + pass + "@" + s.Socket,
	} {
		d, err := redislock.Open(t.Context(), u, nil)
		if err != nil {
			t.Errorf("%s: %v", strings.ReplaceAll(u, url.QueryEscape(secret), "…"), err)
			continue
		}
		if a := ask(t, d, driver.Once, "orders", noWait); a.try() == nil {
			a.release()
			a = ask(t, d, driver.Exclusive, "orders").get()
			a.release()
			ask(t, d, driver.Once, "orders").get()
		}
		d.Close()
	}
	// Two databases are two stores.
	for _, db := range []string{"0", "3"} {
		do(t, raw, "SELECT", db)
		if n := number(t, raw, "EXISTS", "pawl_lock:{orders}"); n != 1 {
			t.Errorf("database %s has %d locks", db, n)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	do(t, raw, "CONFIG", "SET", "requirepass", secret)
	do(t, raw, "AUTH", secret)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+s.Addr[strings.LastIndex(s.Addr, ":")+1:], "--masterauth", secret)
	cluster := redistest.Start(t, "--cluster-enabled", "yes")
	free, _ := net.Listen("tcp", "127.0.0.1:0")
	free.Close()
	web := listener(t, func(c net.Conn) {
		bufio.NewReader(c).ReadString('\n')
		c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	})
	mute := listener(t, func(c net.Conn) { bufio.NewReader(c).ReadString(0) })
	old := listener(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "*") {
				c.Write([]byte("-ERR unknown command `HELLO`\r\n"))
			}
		}
	})
	older := listener(t, func(c net.Conn) { // what Redis 6.0 answers to HELLO
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			switch line = strings.ToUpper(strings.TrimSpace(line)); line {
			case "HELLO":
				c.Write([]byte("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.0.16\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:4\r\n" +
					"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"))
			case "CLIENT":
				c.Write([]byte("-ERR Unknown subcommand or wrong number of arguments for 'SETINFO'. Try CLIENT HELP.\r\n"))
			}
		}
	})
	secretURL := url.QueryEscape(secret)
	for _, c := range []struct{ url, want string }{
		{"redis://:wrong" + secretURL + "@" + s.Addr, "wrong user name or password"},
		{"redis://worker:" + secretURL + "@" + s.Addr, "wrong user name or password"},
		{"redis://" + s.Addr, "wants a password"},
		{"redis://:" + secretURL + "@" + free.Addr().String(), "connection refused"},
		{"redis://:" + secretURL + "@" + web, "no Redis"},
		{"redis://:" + secretURL + "@" + mute, "deadline exceeded"},
		{"redis://" + old, "too old"},
		{"redis://" + older, "version 6.0.16 is too old: locks need Redis 6.2 or Valkey"},
		{"redis://" + replica.Addr, "read-only replica"},
		{"redis://" + cluster.Addr, "redis+cluster://"},
		{"redis://:" + secretURL + "@" + s.Addr + "/99", "out of range"},
		{"redis://:" + secretURL + "@" + s.Addr + "/orders", "should be a number"},
		{"redis://:" + secretURL + "@" + s.Addr + "?timeout=3", "parameters"},
		{"redis://:" + secretURL + "@", "no host"},
		{"redis://:" + secret + "%zz@" + s.Addr, "no URL"},
		{"redis://worker@" + s.Addr, "no password"},
		{"rediss://:" + secretURL + "@" + mute, "does it speak TLS"},
		{"unix://:" + secretURL + "@/no/such/socket", "no such file"},
		{"unix://:" + secretURL + "@", "no absolute path"},
		{"mysql://root:" + secretURL + "@" + s.Addr, `scheme "mysql"`},
		{"", `scheme ""`},
		{":" + secret, "no URL"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if c.want != "deadline exceeded" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
		}
		d, err := redislock.Open(ctx, c.url, nil)
		cancel()
		if err == nil {
			d.Close()
			t.Errorf("Open of %q should fail with %q", c.url, c.want)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("Open of %q: %v; it should say %q", c.url, err, c.want)
		}
		if strings.Contains(err.Error(), "s3same") {
			t.Errorf("Open of %q: the error shows the password: %v", c.url, err)
		}
	}
}

// listener is a server that is no Redis.
func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// A server whose certificate nobody vouches for is refused.
func TestOpenOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	save := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certFile, keyFile := save("cert.pem", "CERTIFICATE", der), save("key.pem", "EC PRIVATE KEY", bytes)
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile, "--tls-auth-clients", "no")
	_, err = redislock.Open(t.Context(), "rediss://127.0.0.1:"+port, nil)
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Open of a server with an unknown certificate: %v", err)
	}
}

func TestNewLeavesTheClientAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := connect(t, s)
	d := redislock.New(c, nil)
	a := ask(t, d, driver.Exclusive, "orders").get()
	ask(t, d, driver.Exclusive, "orders").refused()
	a.release()
	d.Close()
	if got := text(t, c, "PING"); got != "PONG" {
		t.Errorf("after Close of the driver the client says %q", got)
	}
	d = redislock.New(c, nil)
	defer d.Close()
	ask(t, d, driver.Exclusive, "orders").getSoon().release()
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := connect(t, s)
	for what, d := range map[string]*redislock.Driver{
		"a nil client":  redislock.New(nil, nil),
		"a huge Prefix": redislock.New(c, &redislock.Options{Prefix: strings.Repeat("x", 1025)}),
	} {
		r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "n", ID: "u:1", Permits: 1, TTL: time.Second}, Notify: func(driver.Signal) {}}
		if _, err := d.Enter(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Enter with %s: %v", what, err)
		}
		if err := d.Renew(t.Context(), []driver.Hold{r.Hold})[0]; !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Renew with %s: %v", what, err)
		}
		if err := d.Release(t.Context(), r.Hold, driver.End{}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Release with %s: %v", what, err)
		}
		if _, err := d.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Inspect with %s: %v", what, err)
		}
		for _, err := range d.List(t.Context(), "") {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("List with %s: %v", what, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close with %s: %v", what, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	d := open(t, s.URL, nil)
	good := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: "n", ID: "u:1", Permits: 1, TTL: time.Second}, Notify: func(driver.Signal) {}}
	for what, spoil := range map[string]func(*driver.Request){
		"no name":             func(r *driver.Request) { r.Name = "" },
		"a huge name":         func(r *driver.Request) { r.Name = strings.Repeat("x", 4097) },
		"no ID":               func(r *driver.Request) { r.ID = "" },
		"an ID with a space":  func(r *driver.Request) { r.ID = "a b" },
		"no TTL":              func(r *driver.Request) { r.TTL = 0 },
		"a negative TTL":      func(r *driver.Request) { r.TTL = -1 },
		"a TTL of 999 µs":     func(r *driver.Request) { r.TTL = 999 * time.Microsecond },
		"no Notify":           func(r *driver.Request) { r.Notify = nil },
		"no permits":          func(r *driver.Request) { r.Permits = 0 },
		"more than the limit": func(r *driver.Request) { r.Kind, r.Permits, r.Limit = driver.Permits, 3, 2 },
		"a queue's key":       func(r *driver.Request) { r.Name = "redisson_lock_queue:{orders}" },
		"pawl's own key":      func(r *driver.Request) { r.Name = "pawl_token:{orders}" },
		"a permit set's key":  func(r *driver.Request) { r.Name = "{pool}:timeout" },
		"a read hold's key":   func(r *driver.Request) { r.Name = "{orders}:u:7:rwlock_timeout:1" },
	} {
		r := good
		spoil(&r)
		if _, err := d.Enter(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Enter with %s: %v", what, err)
		}
	}
	for _, name := range []string{"redisson", "redisson:x", "redisson_lock", "pawl:x", "x:timeout", "a{b", "rwlock_timeout:1"} {
		r := good
		r.Name, r.ID = name, idOf(d)
		if _, err := d.Enter(t.Context(), r); err != nil {
			t.Errorf("Enter of %q: %v", name, err)
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	s, raw := start(t)
	d := open(t, s.URL, &redislock.Options{Prefix: "app:*{1}:"})
	plain := open(t, s.URL, nil)
	a := ask(t, d, driver.Exclusive, "orders").get()
	if n := number(t, raw, "EXISTS", "app:*{1}:orders"); n != 1 {
		t.Error("the prefix is not in front of the name")
	}
	ask(t, plain, driver.Exclusive, "orders").get().release()
	ask(t, plain, driver.Exclusive, "app:*{1}:orders").refused()
	var names []string
	for r, err := range d.List(t.Context(), "or") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Name)
	}
	if len(names) != 1 || names[0] != "orders" {
		t.Errorf("listed are %q", names)
	}
	a.release()
}

// Whatever the protocol of the caller's client.
func newOverRESP2(t testing.TB, s *redistest.Server) *redislock.Driver {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, AlwaysRESP2: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	d := redislock.New(c, &redislock.Options{Prefix: "resp2:"})
	t.Cleanup(func() {
		d.Close()
		c.Close()
	})
	return d
}
