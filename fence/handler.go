package fence

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
)

// Handler is an http.Handler that lets a request through to Next only after its token was claimed for the resource that
// it is about, and the one that passes carries the lease in its context ([FromContext]). Clients use a [Transport].
//
// Requests for one resource run one after the other, since a claim answers only for the instant in which it runs: without
// this, a slow request could write after a newer holder's request has read. That holds within this process. Where
// several processes serve one resource, Next claims again where it writes, with the lease from its context and a
// guard that is one step with the write ([Table], redisfence.Script); then Parallel may be set.
//
// What is refused never reaches Next, and is told as application/problem+json (RFC 9457) with one of these codes:
//
//	412  the token is stale; the header Pawl-Seen has the newest      (ErrStale)
//	428  the request has no token                                     (ErrNoToken)
//	400  its headers are malformed, it is about no resource, or a shared lease wants to write
//	503  the guard did not answer, or the client went while it waited for its turn
//
// The headers are believed: whoever may reach the server may show any number, so let only clients of yours reach it.
//
// All fields but Parallel and OnError are required. It is safe for concurrent use and must not be copied after its first use.
type Handler struct {
	Guard    Guard
	Resource func(*http.Request) string // what the request is about; "" is refused
	Next     http.Handler
	Parallel bool        // requests for one resource may run at the same time
	OnError  func(error) // is told why a guard did not answer; the client is not. It may be called concurrently

	mu    sync.Mutex
	turns map[string]*turn
}

// turn is what the requests for one resource queue at.
type turn struct {
	free  chan struct{} // has an element while nobody works
	users int
}

// problem is the body of a refusal.
type problem struct {
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Resource string `json:"resource,omitempty"`
	Token    int64  `json:"token,omitempty,string"` // as text: JavaScript's numbers end at 2^53
	Seen     int64  `json:"seen,omitempty,string"`
}

func (p problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Seen != 0 {
		w.Header().Set(SeenHeader, strconv.FormatInt(p.Seen, 10))
	}
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p) // the client may be gone
}

// ServeHTTP claims and serves. It waits for its turn until the request's context ends.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Guard == nil || h.Resource == nil || h.Next == nil {
		problem{Title: "misconfigured", Status: http.StatusInternalServerError, Detail: "fence.Handler needs Guard, Resource and Next"}.write(w)
		return
	}
	resource := h.Resource(r)
	bad := func(detail string) {
		problem{Title: "bad request", Status: http.StatusBadRequest, Detail: detail, Resource: resource}.write(w)
	}
	if resource == "" {
		bad("the request is about no guarded resource")
		return
	}
	if r.Header.Get(TokenHeader) == "" {
		problem{Title: "token required", Status: http.StatusPreconditionRequired, Resource: resource,
			Detail: "take the lock first, and show its token in " + TokenHeader + " and its hold in " + HoldHeader}.write(w)
		return
	}
	l, shared, err := received(r, resource)
	if err != nil {
		bad(err.Error())
		return
	}
	if shared && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions {
		bad(r.Method + " needs an exclusive lease: a shared one only reads")
		return
	}
	if !h.Parallel {
		leave, err := h.enter(r.Context(), resource)
		if err != nil {
			problem{Title: "not served", Status: http.StatusServiceUnavailable, Detail: "the request ended before its turn", Resource: resource}.write(w)
			return
		}
		defer leave()
	}
	claim, with := h.Guard.Claim, WithLease
	if shared {
		claim, with = h.Guard.ClaimShared, WithSharedLease
	}
	if err := claim(r.Context(), resource, l); err != nil {
		h.refuse(w, resource, l, err)
		return
	}
	h.Next.ServeHTTP(w, r.WithContext(with(r.Context(), l)))
}

func (h *Handler) refuse(w http.ResponseWriter, resource string, l Lease, err error) {
	p := problem{Resource: resource, Token: l.Token()}
	switch stale, ok := errors.AsType[*StaleError](err); {
	case ok:
		p.Title, p.Status, p.Detail, p.Seen = "stale token", http.StatusPreconditionFailed, stale.Error(), stale.Seen
	case errors.Is(err, ErrStale), errors.Is(err, ErrNoToken):
		p.Title, p.Status, p.Detail = "stale token", http.StatusPreconditionFailed, "the guard refuses the token"
	default: // err may name what the client need not know
		p.Title, p.Status, p.Detail = "guard unavailable", http.StatusServiceUnavailable, "the guard did not answer; nothing was done"
		if h.OnError != nil {
			h.OnError(err)
		}
	}
	p.write(w)
}

// enter waits until no other request for resource is under way.
func (h *Handler) enter(ctx context.Context, resource string) (leave func(), err error) {
	h.mu.Lock()
	t := h.turns[resource]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		if h.turns == nil {
			h.turns = map[string]*turn{}
		}
		h.turns[resource] = t
	}
	t.users++
	h.mu.Unlock()
	done := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(h.turns, resource)
		}
	}
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; done() }, nil
	case <-ctx.Done():
		done()
		return nil, context.Cause(ctx)
	}
}
