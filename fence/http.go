package fence

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// The headers in which a proof travels. The resource is not among them: the server knows what a request is about.
const (
	TokenHeader = "Pawl-Token" // decimal
	HoldHeader  = "Pawl-Hold"  // percent-encoded
	ModeHeader  = "Pawl-Mode"  // "shared", or absent
	SeenHeader  = "Pawl-Seen"  // of a refusal: the mark
)

type leaseKey struct{}

type carried struct {
	l      Lease
	shared bool
}

// WithLease is ctx with the lease that a Transport shows for requests made with it.
func WithLease(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, carried{l, false})
}

// WithSharedLease is WithLease for a lease that others may hold at the same time: a read lock's.
func WithSharedLease(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, carried{l, true})
}

// FromContext is the lease that WithLease, WithSharedLease or a Handler put into ctx, or nil.
func FromContext(ctx context.Context) Lease {
	c, _ := ctx.Value(leaseKey{}).(carried)
	return c.l
}

// Transport is an http.RoundTripper that shows a lease to the server: its token and its hold, in headers. The lease is the
// one that the request's context carries (WithLease), so that one client serves many leases; in a Handler it is the
// one that came with the request, so that a server passes it on to the next.
//
// A request without a lease, or with one that has ended, is not sent: the error matches ErrStale or ErrNoToken. Make the
// request with the lease's own context too, so that it ends when the lease is lost.
//
// The zero Transport is ready and safe for concurrent use.
type Transport struct {
	Base http.RoundTripper // what sends the request; nil: http.DefaultTransport
}

// RoundTrip sends r with the proof of its lease. It blocks as Base does.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, _ := r.Context().Value(leaseKey{}).(carried)
	p, err := Show(r.URL.Host+r.URL.Path, c.l)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(TokenHeader, strconv.FormatInt(p.Token, 10))
	r.Header.Set(HoldHeader, url.QueryEscape(p.Hold))
	r.Header.Del(ModeHeader)
	if c.shared {
		r.Header.Set(ModeHeader, "shared")
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(r)
}

// CheckResponse answers a *StaleError if the response is a Handler's refusal of a stale token, and nil otherwise. It does
// not touch the body.
func CheckResponse(r *http.Response) error {
	if r.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	seen, err := strconv.ParseInt(r.Header.Get(SeenHeader), 10, 64)
	if err != nil {
		return nil // somebody else's 412
	}
	e := &StaleError{Seen: seen}
	if q := r.Request; q != nil {
		e.Resource = q.URL.Host + q.URL.Path
		e.Token, _ = strconv.ParseInt(q.Header.Get(TokenHeader), 10, 64)
	}
	return e
}

// shown is a lease as it looks from the other end of the wire: what was true when it was sent.
type shown struct {
	resource string
	Proof
}

func (s shown) Name() string { return s.resource }
func (s shown) ID() string   { return s.Hold }
func (s shown) Token() int64 { return s.Proof.Token }
func (s shown) Err() error   { return nil }

// received is the lease that r shows for resource. The error is for the client's eyes.
func received(r *http.Request, resource string) (l Lease, shared bool, err error) {
	token, err := strconv.ParseInt(r.Header.Get(TokenHeader), 10, 64)
	if err != nil || token <= 0 {
		return nil, false, fmt.Errorf("%s must be a positive decimal of at most 63 bits", TokenHeader)
	}
	hold, err := url.QueryUnescape(r.Header.Get(HoldHeader))
	if err != nil || hold == "" || len(hold) > MaxHold {
		return nil, false, fmt.Errorf("%s must be the percent-encoded ID of the hold", HoldHeader)
	}
	switch mode := r.Header.Get(ModeHeader); mode {
	case "":
		return shown{resource, Proof{token, hold}}, false, nil
	case "shared":
		return shown{resource, Proof{token, hold}}, true, nil
	default:
		return nil, false, fmt.Errorf("%s must be absent or %q", ModeHeader, "shared")
	}
}
