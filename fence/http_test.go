package fence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
	"github.com/pawl-lock/pawl/memlock"
)

// byQuery is what the requests of these tests are about.
func byQuery(r *http.Request) string { return r.URL.Query().Get("r") }

// remote is a number on a server behind a Handler.
type remote struct {
	client   *http.Client
	url      string
	resource string
}

func (r remote) do(ctx context.Context, method, body string, l fence.Lease) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+"/?r="+url.QueryEscape(r.resource), strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := fence.CheckResponse(resp); err != nil {
		return 0, err
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s, %w", resp.Status, b, err)
	}
	return strconv.Atoi(string(b))
}

func (r remote) Read(ctx context.Context, l fence.Lease) (int, error) {
	return r.do(fence.WithLease(ctx, l), "GET", "", l)
}

func (r remote) ReadShared(ctx context.Context, l fence.Lease) (int, error) {
	return r.do(fence.WithSharedLease(ctx, l), "GET", "", l)
}

func (r remote) Write(ctx context.Context, l fence.Lease, v int) error {
	_, err := r.do(fence.WithLease(ctx, l), "PUT", strconv.Itoa(v), l)
	return err
}

// number serves a register per resource: GET reads, PUT writes. It trusts that its calls for one resource do not
// overlap, and takes its time, so that a Handler which let them overlap would be seen.
type number struct {
	mu sync.Mutex
	v  map[string]int
}

func (n *number) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	time.Sleep(time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Method == "PUT" {
		if n.v == nil {
			n.v = map[string]int{}
		}
		n.v[byQuery(r)], _ = strconv.Atoi(string(body))
	}
	fmt.Fprint(w, n.v[byQuery(r)])
}

// serve starts a server. Its client shows the lease of the context.
func serve(t *testing.T, h http.Handler) (url string, c *http.Client) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c = &http.Client{Transport: &fence.Transport{Base: s.Client().Transport}}
	return s.URL, c
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	base, c := serve(t, &fence.Handler{Guard: new(fence.Gate).Guard(), Resource: byQuery, Next: &number{}})
	guardtest.Run(t, func(resource string) guardtest.Register { return remote{c, base, resource} })
}

type brokenGuard struct{}

func (brokenGuard) Claim(context.Context, string, fence.Lease) error {
	return errors.New("dial tcp 10.0.0.1: secret refused")
}

func (brokenGuard) ClaimShared(context.Context, string, fence.Lease) error { return fence.ErrStale }

// Every refusal has its code and a body that says what to do; nothing that is refused reaches the next handler.
func TestHandlerRefusals(t *testing.T) {
	t.Parallel()
	var reported []error
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("it was let through:", r.Header) })
	gate := new(fence.Gate)
	if err := gate.Claim("r", guardtest.Shown{Hold: "h", Number: 9007199254740993}); err != nil {
		t.Fatal(err)
	}
	good := &fence.Handler{Guard: gate.Guard(), Resource: byQuery, Next: next}
	broken := &fence.Handler{Guard: brokenGuard{}, Resource: byQuery, Next: next, OnError: func(err error) { reported = append(reported, err) }}
	for _, c := range []struct {
		h                    http.Handler
		method, target       string
		token, hold, mode    string
		code                 int
		title, detail, extra string
	}{
		{good, "GET", "/?r=r", "5", "h", "", 412, "stale token", "9007199254740993 has been here", `"token":"5","seen":"9007199254740993"`},
		{good, "PUT", "/?r=r", "9007199254740993", "other", "", 412, "stale token", "another hold", ""},
		{good, "GET", "/?r=r", "5", "h", "shared", 412, "stale token", "has been here", ""},
		{good, "GET", "/?r=r", "", "h", "", 428, "token required", "Pawl-Token", ""},
		{good, "GET", "/?r=r", "0", "h", "", 400, "bad request", "Pawl-Token", ""},
		{good, "GET", "/?r=r", "-5", "h", "", 400, "bad request", "Pawl-Token", ""},
		{good, "GET", "/?r=r", "five", "h", "", 400, "bad request", "Pawl-Token", ""},
		{good, "GET", "/?r=r", "9223372036854775808", "h", "", 400, "bad request", "Pawl-Token", ""},
		{good, "GET", "/?r=r", "5", "", "", 400, "bad request", "Pawl-Hold", ""},
		{good, "GET", "/?r=r", "5", "%zz", "", 400, "bad request", "Pawl-Hold", ""},
		{good, "GET", "/?r=r", "5", strings.Repeat("x", 256), "", 400, "bad request", "Pawl-Hold", ""},
		{good, "GET", "/?r=r", "5", "h", "exclusive", 400, "bad request", "Pawl-Mode", ""},
		{good, "PUT", "/?r=r", "9907199254740993", "h", "shared", 400, "bad request", "exclusive lease", ""},
		{good, "GET", "/", "5", "h", "", 400, "bad request", "no guarded resource", ""},
		{broken, "GET", "/?r=r", "5", "h", "", 503, "guard unavailable", "nothing was done", ""},
		{broken, "GET", "/?r=r", "5", "h", "shared", 412, "stale token", "refuses", ""},
		{&fence.Handler{}, "GET", "/?r=r", "5", "h", "", 500, "misconfigured", "needs Guard", ""},
	} {
		r := httptest.NewRequest(c.method, c.target, nil)
		for k, v := range map[string]string{fence.TokenHeader: c.token, fence.HoldHeader: c.hold, fence.ModeHeader: c.mode} {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, r)
		var body struct {
			Title, Detail string
			Status        int
		}
		text := w.Body.String()
		if err := json.Unmarshal([]byte(text), &body); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%+v: %v: %s", c, err, text)
		}
		if w.Code != c.code || body.Status != c.code || body.Title != c.title || !strings.Contains(body.Detail, c.detail) ||
			!strings.Contains(text, c.extra) || strings.Contains(text, "secret") {
			t.Errorf("%s %s token %q hold %.10q mode %q: got %d %s, want %d %s … %s … %s", c.method, c.target, c.token, c.hold, c.mode,
				w.Code, text, c.code, c.title, c.detail, c.extra)
		}
	}
	if len(reported) != 1 || !strings.Contains(reported[0].Error(), "secret") {
		t.Errorf("OnError got %v", reported)
	}
}

// Requests for one resource are served one after the other, those for another at once; who goes away leaves nothing.
func TestHandlerTurns(t *testing.T) {
	t.Parallel()
	busy, let := make(chan string, 10), make(chan struct{})
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		busy <- byQuery(r)
		<-let
	})
	h := &fence.Handler{Guard: new(fence.Gate).Guard(), Resource: byQuery, Next: next}
	base, c := serve(t, h)
	answers := make(chan error, 10)
	ask := func(ctx context.Context, resource string, token int64) {
		_, err := remote{c, base, resource}.do(fence.WithLease(ctx, guardtest.Shown{Hold: "h", Number: token}), "PUT", "", nil)
		answers <- err
	}
	go ask(t.Context(), "a", 1)
	if got := <-busy; got != "a" {
		t.Fatal(got)
	}
	go ask(t.Context(), "b", 1)
	if got := <-busy; got != "b" {
		t.Fatalf("got %q served beside a, want b", got)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	r := httptest.NewRequest("PUT", "/?r=a", nil).WithContext(short)
	r.Header.Set(fence.TokenHeader, "2")
	r.Header.Set(fence.HoldHeader, "h")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r) // waits for its turn, and goes
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("the one that went: got %d %s", w.Code, w.Body)
	}
	go ask(t.Context(), "a", 3)
	close(let)
	if got := <-busy; got != "a" {
		t.Fatal(got)
	}
	for range 3 {
		<-answers
	}

	free := &fence.Handler{Guard: new(fence.Gate).Guard(), Resource: byQuery, Parallel: true, Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		busy <- fence.FromContext(r.Context()).Name()
		<-r.Context().Done()
	})}
	base, c = serve(t, free)
	gone, leave := context.WithCancel(t.Context())
	go ask(gone, "p", 1)
	go ask(gone, "p", 1)
	for range 2 {
		if got := <-busy; got != "p" {
			t.Errorf("got %q, want p", got)
		}
	}
	leave()
	<-answers
	<-answers
}

type closed struct {
	io.Reader
	n int
}

func (c *closed) Close() error { c.n++; return nil }

// A request that could not be guarded is not sent.
func TestTransportSendsNothingUnguarded(t *testing.T) {
	t.Parallel()
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		t.Error("it was sent:", r.Header)
		return nil, io.EOF
	})
	over := guardtest.Shown{Hold: "h", Number: 3, Ended: pawl.ErrLost}
	for _, c := range []struct {
		l    fence.Lease
		want error
	}{{nil, fence.ErrStale}, {over, pawl.ErrLost}, {over, fence.ErrStale}, {guardtest.Shown{Hold: "h"}, fence.ErrNoToken}} {
		body := &closed{Reader: strings.NewReader("x")}
		r := httptest.NewRequest("PUT", "http://shop/stock", body).WithContext(fence.WithLease(t.Context(), c.l))
		_, err := (&fence.Transport{Base: base}).RoundTrip(r)
		if !errors.Is(err, c.want) || body.n != 1 {
			t.Errorf("%v: got %v, body closed %d times", c.l, err, body.n)
		}
	}
	if _, err := (&fence.Transport{Base: base}).RoundTrip(httptest.NewRequest("GET", "http://shop/stock", nil)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("no lease in the context: got %v", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The caller's request stays as it is, and what it says of itself is overwritten.
func TestTransportHeaders(t *testing.T) {
	t.Parallel()
	var got http.Header
	tr := &fence.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) { got = r.Header; return nil, io.EOF })}
	r := httptest.NewRequest("GET", "http://shop/", nil)
	r.Header.Set(fence.TokenHeader, "99")
	r.Header.Set(fence.ModeHeader, "shared")
	tr.RoundTrip(r.WithContext(fence.WithLease(t.Context(), guardtest.Shown{Hold: "a b:1\n", Number: 7})))
	if got.Get(fence.TokenHeader) != "7" || got.Get(fence.HoldHeader) != "a+b%3A1%0A" || got.Get(fence.ModeHeader) != "" || r.Header.Get(fence.TokenHeader) != "99" {
		t.Errorf("sent %v, left %v", got, r.Header)
	}
}

func TestCheckResponse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code  int
		seen  string
		stale bool
	}{{200, "", false}, {412, "", false}, {412, "x", false}, {200, "5", false}, {412, "5", true}} {
		r := &http.Response{StatusCode: c.code, Header: http.Header{}}
		r.Header.Set(fence.SeenHeader, c.seen)
		if err := fence.CheckResponse(r); errors.Is(err, fence.ErrStale) != c.stale || !c.stale && err != nil {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// A worker holds the lock of an account and books it over HTTP. When it was paused past its lease, the server turns it away.
func ExampleHandler() {
	ctx := context.Background()
	store := memlock.New()
	locks := pawl.New(store)
	defer locks.Close()

	balance := 100
	bank := httptest.NewServer(&fence.Handler{
		Guard:    new(fence.Gate).Guard(), // or a redisfence.Guard, when the bank has several servers
		Resource: func(r *http.Request) string { return r.URL.Path },
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "PUT" {
				b, _ := io.ReadAll(r.Body)
				balance, _ = strconv.Atoi(string(b))
			}
			fmt.Fprint(w, balance)
		}),
	})
	defer bank.Close()
	client := &http.Client{Transport: &fence.Transport{}}
	call := func(l fence.Lease, method, body string) string {
		req, err := http.NewRequestWithContext(fence.WithLease(ctx, l), method, bank.URL+"/accounts/7", strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		resp, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		if err := fence.CheckResponse(resp); err != nil {
			return "refused"
		}
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}

	slow, err := locks.Mutex("account:7").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer slow.Unlock()
	fmt.Println("slow reads", call(slow, "GET", ""))
	asleep := guardtest.Freeze(slow) // it has looked at its lease, and is paused here
	store.Expire("account:7")        // meanwhile its lease runs out

	quick, err := locks.Mutex("account:7").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer quick.Unlock()
	fmt.Println("quick reads", call(quick, "GET", ""))
	fmt.Println("slow writes 90:", call(asleep, "PUT", "90"))
	fmt.Println("quick writes 70:", call(quick, "PUT", "70"))
	// Output:
	// slow reads 100
	// quick reads 100
	// slow writes 90: refused
	// quick writes 70: 70
}
