package zklock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/zklock"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"", "zookeeper", "redis://h", "zookeeper://", "zookeeper:///locks", "zk://h:port", "zk://h:1,", "zk://user@h",
		"zk://hunter2:s%zz@h", "zk://h/a//b", "zk://h/../x", "zk://h/a%00", "zk://h/zookeeper", "zk://h/locks?tiemout=1s",
		"zk://h?timeout=30", "zk://h?timeout=-1s", "zk://user:hunter2@h?x=1", "zk://user:hunter2@h/a/./b"} {
		d, err := zklock.Open(t.Context(), u, nil)
		if err == nil {
			d.Close()
			t.Errorf("%q should be refused", u)
			continue
		}
		wantIs(t, u, err, driver.ErrInvalid)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	for what, d := range map[string]*zklock.Driver{
		"no connection":    zklock.New(nil, nil),
		"relative root":    zklock.New(conn, &zklock.Options{Root: "locks"}),
		"NUL in the root":  zklock.New(conn, &zklock.Options{Root: "/lo\x00cks"}),
		"negative session": zklock.New(conn, &zklock.Options{SessionTimeout: -1}),
	} {
		_, err := d.Enter(t.Context(), request(driver.Exclusive, "a", time.Second))
		wantIs(t, what+": Enter", err, driver.ErrInvalid)
		wantIs(t, what+": Renew", d.Renew(t.Context(), make([]driver.Hold, 1))[0], driver.ErrInvalid)
		wantIs(t, what+": Release", d.Release(t.Context(), driver.Hold{}, driver.End{}), driver.ErrInvalid)
		_, err = d.Inspect(t.Context(), "a")
		wantIs(t, what+": Inspect", err, driver.ErrInvalid)
		_, err = d.Watch(t.Context(), "a")
		wantIs(t, what+": Watch", err, driver.ErrInvalid)
		for _, err := range d.List(t.Context(), "") {
			wantIs(t, what+": List", err, driver.ErrInvalid)
		}
		if err := d.Close(); err != nil {
			t.Errorf("%s: Close: %v", what, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	d := open(t, url(server.Addr), nil)
	for what, change := range map[string]func(r *driver.Request){
		"no name":            func(r *driver.Request) { r.Name = "" },
		"too long a name":    func(r *driver.Request) { r.Name = strings.Repeat("x", 4097) },
		"an odd ID":          func(r *driver.Request) { r.ID = "me/1" },
		"no TTL":             func(r *driver.Request) { r.TTL = 0 },
		"two of a mutex":     func(r *driver.Request) { r.Permits = 2 },
		"no Notify":          func(r *driver.Request) { r.Notify = nil },
		"too many permits":   func(r *driver.Request) { r.Kind, r.Permits, r.Limit = driver.Permits, 3, 2 },
		"a thousand permits": func(r *driver.Request) { r.Kind, r.Permits, r.Limit = driver.Permits, 1001, 2000 },
		"a huge value":       func(r *driver.Request) { r.Kind, r.Value = driver.Leader, make([]byte, 1<<20) },
	} {
		r := request(driver.Exclusive, fresh(), time.Second)
		change(&r)
		_, err := d.Enter(t.Context(), r)
		wantIs(t, what, err, driver.ErrInvalid)
	}
	_, err := d.Enter(t.Context(), request(driver.Once, fresh(), time.Second))
	wantIs(t, "Once", err, errors.ErrUnsupported)
}

// TestNULInAName works, as every byte does.
func TestNULInAName(t *testing.T) {
	t.Parallel()
	locks := client(t, server.Addr, 20*time.Second)
	name := fresh() + "\x00/../\xff"
	if err := locks.Mutex(name).Do(t.Context(), func(context.Context) error {
		for r, err := range locks.List(t.Context(), name[:5]) {
			if err != nil {
				return err
			}
			if r.Name == name {
				return nil
			}
		}
		return errors.New("the name is not listed")
	}); err != nil {
		t.Error(err)
	}
}

// TestUnreachable: Open and Lock are bounded by their contexts, and say what is wrong with each server.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	closed, err := zktest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	begin := time.Now()
	d, err := zklock.Open(ctxFor(t, 500*time.Millisecond), "zk://user:hunter2@"+closed+","+silent.Addr().String()+"/locks", nil)
	if err == nil {
		d.Close()
		t.Fatal("Open of nothing succeeds")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Open took %v with a context of 500 ms", took)
	}
	wantIs(t, "Open", err, context.DeadlineExceeded)
	for _, want := range []string{closed, "refused", silent.Addr().String(), "did not answer"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error should say %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the password: %v", err)
	}

	p := proxied(t)
	locks := client(t, p.Addr, 20*time.Second)
	p.Refuse(true)
	p.Cut()
	begin = time.Now()
	_, err = locks.Mutex(fresh()).Lock(ctxFor(t, 300*time.Millisecond))
	if err == nil || time.Since(begin) > 5*time.Second {
		t.Errorf("Lock on an ensemble that went away: %v after %v", err, time.Since(begin))
	}
}

// TestRights: a user needs rights below the root and nowhere else, and is told what is missing.
func TestRights(t *testing.T) {
	t.Parallel()
	conn := connect(t, server.Addr, 20*time.Second)
	base := "/app-" + fresh()
	mine := zk.DigestACL(zk.PermAll, "me", "secret")
	nobody := zk.DigestACL(zk.PermAll, "nobody", "else")
	mk := func(path string, acl []zk.ACL) {
		t.Helper()
		if _, err := conn.Create(path, nil, 0, acl); err != nil {
			t.Fatal(err)
		}
	}
	mk(base, zk.WorldACL(zk.PermAll))
	mk(base+"/locks", mine)
	mk(base+"/closed", nobody)
	if _, err := conn.SetACL(base, nobody, -1); err != nil {
		t.Fatal(err)
	}

	good := open(t, "zk://me:secret@"+server.Addr+base+"/locks", &zklock.Options{ACL: zk.AuthACL(zk.PermAll)})
	for _, kind := range everyKind {
		h, _ := take(t, good, request(kind, "a", time.Minute))
		if err := good.Renew(t.Context(), []driver.Hold{h})[0]; err != nil {
			t.Error(err)
		}
		if err := good.Release(t.Context(), h, driver.End{}); err != nil {
			t.Error(err)
		}
	}
	take(t, good, request(driver.Exclusive, "b", time.Minute))

	stranger := zklock.New(conn, &zklock.Options{Root: base + "/locks"})
	defer stranger.Close()
	_, err := try(t, stranger, request(driver.Exclusive, "b", time.Minute))
	wantIs(t, "a stranger's Try", err, zk.ErrNoAuth, driver.ErrNotDone)
	_, err = stranger.Inspect(t.Context(), "b")
	wantIs(t, "a stranger's Inspect", err, zk.ErrNoAuth)
	if err == nil || !strings.Contains(err.Error(), base+"/locks/b") || !strings.Contains(err.Error(), "no right") {
		t.Errorf("the error should say what there is no right to: %v", err)
	}

	_, err = zklock.Open(t.Context(), "zk://me:secret@"+server.Addr+base+"/closed", nil)
	wantIs(t, "Open where there is no right", err, zk.ErrNoAuth)
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows the password: %v", err)
	}
	missing := open(t, "zk://me:secret@"+server.Addr+base+"/missing/root", nil)
	r := request(driver.Exclusive, "a", time.Minute)
	r.Wait = true
	_, err = try(t, missing, r)
	wantIs(t, "a root that may not be made", err, zk.ErrNoAuth, driver.ErrNotDone)
	if err == nil || !strings.Contains(err.Error(), base+"/missing") {
		t.Errorf("the error should name the node that could not be made: %v", err)
	}
}

// TestFreshRoot is made, as are the directories above it.
func TestFreshRoot(t *testing.T) {
	t.Parallel()
	root := "/" + fresh() + "/deep/down"
	d := open(t, "zk://"+server.Addr+root, nil)
	if r, err := d.Inspect(t.Context(), "a"); err != nil || len(r.Holds) > 0 {
		t.Errorf("Inspect under a root that does not exist: %+v, %v", r, err)
	}
	for range d.List(t.Context(), "") {
		t.Error("List under a root that does not exist yields something")
	}
	take(t, d, request(driver.Exclusive, "a", time.Minute))
	conn := connect(t, server.Addr, 20*time.Second)
	if got := kids(t, conn, root+"/a"); len(got) != 1 {
		t.Errorf("the children of %s/a are %q", root, got)
	}
}

// TestAuthSurvivesReconnect: credentials are given again on a new connection.
func TestAuthSurvivesReconnect(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	d := open(t, "zk://me:secret@"+p.Addr+"/"+fresh(), &zklock.Options{ACL: zk.AuthACL(zk.PermAll), SessionTimeout: 20 * time.Second})
	h, _ := take(t, d, request(driver.Exclusive, "a", time.Minute))
	if err := d.Release(t.Context(), h, driver.End{}); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	within(t, patience, "a lock after the cut", func() bool {
		_, err := try(t, d, request(driver.Exclusive, "b", time.Minute))
		return err == nil
	})
}

// TestTLS talks to a server's secure port.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	roots := certificate(t, filepath.Join(dir, "server.pem"))
	addr, err := zktest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	zktest.Start(t, zktest.Config{Lines: []string{
		"secureClientPort=" + port,
		"secureClientPortAddress=127.0.0.1",
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"ssl.keyStore.location=" + filepath.Join(dir, "server.pem"),
		"ssl.keyStore.type=PEM",
		"ssl.trustStore.location=" + filepath.Join(dir, "server.pem"),
		"ssl.trustStore.type=PEM",
		"ssl.clientAuth=none",
	}})
	d, err := zklock.Open(ctxFor(t, patience), "zk://"+addr+"/locks", &zklock.Options{TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	locks := pawl.New(d)
	defer locks.Close()
	if err := locks.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	_, err = zklock.Open(ctxFor(t, time.Second), "zk://"+addr+"/locks", &zklock.Options{TLS: &tls.Config{RootCAs: x509.NewCertPool()}})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}

// certificate writes a key and a certificate for 127.0.0.1 to a file, and answers who vouches for it.
func certificate(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "zktest"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text := fmt.Appendf(nil, "%s%s", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), cert)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// TestStore is the same for whoever names the same servers and root, in whatever order, and has no password.
func TestStore(t *testing.T) {
	t.Parallel()
	p := proxied(t)
	a := open(t, "zk://user:geheim@"+server.Addr+","+p.Addr+"/locks", nil)
	b := open(t, "zookeeper://"+p.Addr+","+server.Addr+"/locks/", nil)
	c := open(t, "zk://"+server.Addr+","+p.Addr, nil)
	if a.Store() != b.Store() || a.Store() == c.Store() || strings.Contains(a.Store(), "geheim") {
		t.Errorf("two drivers of one store call it %q and %q, one of another root %q", a.Store(), b.Store(), c.Store())
	}
	conn := connect(t, server.Addr, 20*time.Second)
	if _, _, err := conn.Exists("/"); err != nil {
		t.Fatal(err)
	}
	if got, want := zklock.New(conn, nil).Store(), "zookeeper "+server.Addr+" /"; got != want {
		t.Errorf("a driver of a caller's connection calls its store %q, not %q", got, want)
	}
}
