// Package input tests what pawl says when a cluster cannot be used, or not in this way.
package input

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/etcdlock/etcdtest/suite"
)

const patience = 20 * time.Second

func place(t *testing.T, d driver.Driver, name string) (driver.Place, driver.Request) {
	t.Helper()
	r := driver.Request{Hold: driver.Hold{Kind: driver.Exclusive, Name: name, ID: "11111111-2222-4333-8444-555555555555:" + fmt.Sprint(time.Now().UnixNano()),
		Permits: 1, TTL: 10 * time.Second}, Notify: func(driver.Signal) {}}
	p, err := d.Enter(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// says wants an error that is certain, has all of these words, and none of the secrets.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; wanted one with %q", words)
		return
	}
	t.Log(err)
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%q has the password", err)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for url, word := range map[string]string{
		"redis://h":                      "scheme",
		"etcd://u:se%cret@h":             "no URL",
		"etcd://":                        "host",
		"etcd://h,,i":                    "host",
		"etcd://h:":                      "port",
		"etcd://h:1,i:":                  "port",
		"etcd://:secret@h":               "user",
		"etcd://user@h":                  "user",
		"etcd://h?x=secret":              "parameters",
		"etcd://h?ca=/x":                 "etcds",
		"etcds://h?cert=/x":              "cert and key",
		"etcds://h?ca=/does/not/exist":   "/does/not/exist",
		"etcd://user:secret@h?tls=false": "parameters",
	} {
		_, err := etcdlock.Open(t.Context(), url, nil)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
		says(t, err, word)
	}
	if _, err := etcdlock.New(nil, nil).Inspect(t.Context(), "x"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a nil client: %v", err)
	}
}

// Nobody, a web server, and somebody who never says a word.
func TestNoEtcd(t *testing.T) {
	t.Parallel()
	open := func(addr string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := etcdlock.Open(ctx, "etcd://user:secret@"+addr, nil)
		if took := time.Since(begun); took > 3*time.Second+patience/2 {
			t.Errorf("Open took %v", took)
		}
		if err2 := func() error { _, err := etcdlock.Open(ctx, "etcd://"+addr, nil); return err }(); err2 == nil {
			t.Errorf("Open of %s without a login: no error", addr)
		}
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	says(t, open(addr), addr)

	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	go http.Serve(web, http.NotFoundHandler())
	says(t, open(web.Addr().String()), web.Addr().String())

	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	says(t, open(mute.Addr().String()), mute.Addr().String())
}

// Without a quorum every call ends with ctx, and says what is wrong.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	d := suite.Open(t, c.URL, nil)
	p, r := place(t, d, "quorum")
	if _, err := p.Try(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.Members[1].Kill()
	c.Members[2].Kill()
	bounded := func(what string, f func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := f(ctx)
		if took := time.Since(begun); took > patience/2 {
			t.Errorf("%s took %v", what, took)
		}
		says(t, err)
	}
	fresh, _ := place(t, d, "another")
	bounded("Try", func(ctx context.Context) error { _, err := fresh.Try(ctx, 1); return err })
	bounded("Renew", func(ctx context.Context) error { return d.Renew(ctx, []driver.Hold{r.Hold})[0] })
	bounded("Release", func(ctx context.Context) error { return d.Release(ctx, r.Hold, driver.End{}) })
	bounded("Inspect", func(ctx context.Context) error { _, err := d.Inspect(ctx, "quorum"); return err })
	bounded("Open", func(ctx context.Context) error { _, err := etcdlock.Open(ctx, c.URL, nil); return err })
	begun := time.Now()
	d.Close()
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("Close took %v", took)
	}
}

func authCluster(t *testing.T, args ...string) *etcdtest.Cluster {
	t.Helper()
	c := etcdtest.Start(t, etcdtest.Options{Args: args})
	raw := c.Client()
	ctx := t.Context()
	for _, err := range []error{
		second(raw.UserAdd(ctx, "root", "rootsecret")), second(raw.UserGrantRole(ctx, "root", "root")),
		second(raw.RoleAdd(ctx, "locker")),
		second(raw.RoleGrantPermission(ctx, "locker", "locks/", clientv3.GetPrefixRangeEnd("locks/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(raw.RoleAdd(ctx, "reader")),
		second(raw.RoleGrantPermission(ctx, "reader", "locks/", clientv3.GetPrefixRangeEnd("locks/"), clientv3.PermissionType(clientv3.PermRead))),
		second(raw.UserAdd(ctx, "user", "usersecret")), second(raw.UserGrantRole(ctx, "user", "locker")),
		second(raw.UserAdd(ctx, "looker", "lookersecret")), second(raw.UserGrantRole(ctx, "looker", "reader")),
		second(raw.AuthEnable(ctx)),
	} {
		if err != nil && !strings.Contains(err.Error(), "already exist") {
			t.Fatal(err)
		}
	}
	return c
}

func second[T any](_ T, err error) error { return err }

func TestAuth(t *testing.T) {
	t.Parallel()
	c := authCluster(t, "--auth-token-ttl=2")
	at := func(login, path string) string { return "etcd://" + login + c.Members[0].Addr + path }
	open := func(url string) error {
		d, err := etcdlock.Open(t.Context(), url, nil)
		if err == nil {
			d.Close()
		}
		return err
	}
	says(t, open(at("user:wrongsecret@", "/locks")), "wrong user name or password")
	says(t, open(at("nobody:usersecret@", "/locks")), "wrong user name or password")
	says(t, open(at("", "/locks")), "user name and password")
	says(t, open(at("user:usersecret@", "/other")), "lacks a permission")

	looker := suite.Open(t, at("looker:lookersecret@", "/locks"), nil)
	p, _ := place(t, looker, "x")
	_, err := p.Try(t.Context(), 1)
	says(t, err, "lacks a permission")
	if !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("%v is not certain", err)
	}

	// A login lasts two seconds here; a wait and a hold last longer.
	a, b := pawl.New(suite.Open(t, at("user:usersecret@", "/locks"), nil)), pawl.New(suite.Open(t, at("user:usersecret@", "/locks"), nil))
	defer a.Close()
	defer b.Close()
	l, err := a.With(pawl.Options{TTL: 9 * time.Second}).Mutex("long").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		w, err := b.With(pawl.Options{TTL: 9 * time.Second}).Mutex("long").Lock(context.Background())
		got <- err
		w.Unlock()
	}()
	time.Sleep(7 * time.Second)
	if err := l.Err(); err != nil {
		t.Errorf("a lease after the login was over: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Errorf("Unlock after the login was over: %v", err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Errorf("a wait for longer than the login: %v", err)
		}
	case <-time.After(patience):
		t.Error("a waiter whose login was over was not woken")
	}
}

// With the NOSPACE alarm nothing new is to be had, what is held is kept and can be given back, and afterwards all is well.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Args: []string{"--quota-backend-bytes=4194304"}})
	raw := c.Client()
	d := suite.Open(t, c.URL, nil)
	p, r := place(t, d, "held")
	g, err := p.Try(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Hold.Token = g.Token
	full := false
	for i := 0; i < 100 && !full; i++ {
		_, err := raw.Put(t.Context(), fmt.Sprint("fill/", i), strings.Repeat("x", 500_000))
		full = err != nil
	}
	if !full {
		t.Fatal("the cluster does not get full")
	}
	q, _ := place(t, d, "new")
	_, err = q.Try(t.Context(), 1)
	says(t, err, "NOSPACE")
	if !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("%v is not certain", err)
	}
	if err := d.Renew(t.Context(), []driver.Hold{r.Hold})[0]; err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Release(t.Context(), r.Hold, driver.End{}); err != nil {
		t.Errorf("Release: %v", err)
	}
	if _, err := raw.Delete(t.Context(), "fill/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	rev, err := raw.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Compact(t.Context(), rev.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Defragment(t.Context(), c.Members[0].Addr); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Try(t.Context(), 1); err != nil {
		t.Errorf("after the alarm: %v", err)
	}
}

// Endpoints of two clusters are noticed.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	a, b := etcdtest.Start(t, etcdtest.Options{}), etcdtest.Start(t, etcdtest.Options{})
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{a.Members[0].Addr, b.Members[0].Addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	d := etcdlock.New(cli, nil)
	defer d.Close()
	for end := time.Now().Add(patience); ; {
		_, err := d.Inspect(t.Context(), "x")
		if err != nil {
			says(t, err, "different clusters")
			return
		}
		if time.Now().After(end) {
			t.Fatal("two clusters are taken for one")
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	c := etcdtest.Start(t, etcdtest.Options{TLS: &etcdtest.TLS{Cert: cert, Key: key}})
	d := suite.Open(t, "etcds://"+c.Members[0].Addr+"/locks?ca="+cert, nil)
	p, r := place(t, d, "x")
	if _, err := p.Try(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), r.Hold, driver.End{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := etcdlock.Open(ctx, "etcds://"+c.Members[0].Addr+"/locks", nil)
	says(t, err, c.Members[0].Addr)
	_, err = etcdlock.Open(ctx, "etcd://"+c.Members[0].Addr+"/locks", nil)
	says(t, err, c.Members[0].Addr)
}

func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
}

// switchboard leads connections to one of several addresses.
type switchboard struct {
	addr  string
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func newSwitchboard(t *testing.T, to string) *switchboard {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &switchboard{addr: l.Addr().String(), to: to}
	t.Cleanup(func() { l.Close(); s.lead("") })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			out, err := net.Dial("tcp", s.to)
			if err != nil {
				s.mu.Unlock()
				in.Close()
				continue
			}
			s.conns = append(s.conns, in, out)
			s.mu.Unlock()
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return s
}

// lead ends all connections; new ones go to another address.
func (s *switchboard) lead(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

// A cluster that was made anew behind the same address is no place where a lock could be found lost or free: its answers
// are refused, the waiter does not get in, and the holder is told when its trust is over.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	a, b := etcdtest.Start(t, etcdtest.Options{}), etcdtest.Start(t, etcdtest.Options{})
	s := newSwitchboard(t, a.Members[0].Addr)
	d := suite.Open(t, "etcd://"+s.addr, nil)
	locks := pawl.New(d).With(pawl.Options{TTL: 5 * time.Second})
	defer locks.Close()
	l, err := locks.Mutex("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.lead(b.Members[0].Addr)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		p, _ := place(t, d, "new")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := p.Try(ctx, 1)
		cancel()
		if err == nil {
			t.Fatal("a lock was granted by another cluster")
		}
		if strings.Contains(err.Error(), "different clusters") {
			says(t, err, "different clusters", "made anew")
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	r, err := d.Inspect(t.Context(), "held")
	if err == nil {
		t.Errorf("the other cluster's answer is believed: %+v", r)
	}
	if err := l.Err(); err != nil {
		t.Errorf("long before the deadline: %v", err)
	}
	select {
	case <-l.Done():
		lost, ok := errors.AsType[*pawl.LostError](l.Err())
		if !ok || lost.Reason != pawl.Expired {
			t.Errorf("the lease ended with %v", l.Err())
		}
	case <-time.After(patience):
		t.Fatal("the holder was not told")
	}
	l.Unlock()
	s.lead(a.Members[0].Addr)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		l, err := locks.Mutex("new").TryLock(t.Context())
		if err == nil {
			l.Unlock()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the first cluster is back: %v", err)
		}
	}
}

// A waiter whose permission is taken away, and with it its watch, gets in once it is given back.
func TestPermissionTaken(t *testing.T) {
	t.Parallel()
	c := authCluster(t)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Members[0].Addr}, Username: "root", Password: "rootsecret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	url := "etcd://user:usersecret@" + c.Members[0].Addr + "/locks"
	const ttl = 20 * time.Second
	a, b := pawl.New(suite.Open(t, url, nil)).With(pawl.Options{TTL: ttl}), pawl.New(suite.Open(t, url, nil)).With(pawl.Options{TTL: ttl})
	defer a.Close()
	defer b.Close()
	l, err := a.Mutex("taken").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		w, err := b.Mutex("taken").Lock(context.Background())
		got <- err
		w.Unlock()
	}()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		r, err := root.Get(t.Context(), "locks/taken/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		if r.Count == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d contenders", r.Count)
		}
	}
	if _, err := root.UserRevokeRole(t.Context(), "user", "locker"); err != nil {
		t.Fatal(err)
	}
	_, err = a.Mutex("other").TryLock(t.Context())
	says(t, err, "lacks a permission")
	select {
	case err := <-got:
		t.Fatalf("the waiter got in while the name was held: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	if _, err := root.UserGrantRole(t.Context(), "user", "locker"); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the waiter was not woken")
	}
}
