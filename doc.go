// Package pawl gives Go programs distributed locks over the store that a team already runs.
//
// What it does not promise comes first. A lock alone cannot protect a resource against a holder that was paused past its
// TTL: pass Token to the resource and check it there before the first read (package fence). A lease that is lost ends its
// Context before the store can give the name away, but only code that looks at its context stops.
//
//	locks := pawl.New(redislock.New(client, nil))
//	defer locks.Close()
//
//	err := locks.Mutex("stock:1001").Do(ctx, sell)        // sell's ctx ends when the lock is lost
//
//	lease, err := locks.Mutex("stock:1001").TryLock(ctx)  // or Lock, which waits
//	switch {
//	case errors.Is(err, pawl.ErrHeld):
//		return soldOut
//	case err != nil:
//		return err
//	}
//	defer lease.Unlock()
//	return sellWith(lease.Context(ctx), lease.Token())
//
// # Words
//
// A lease is a time-limited right to a name; TTL is how long the store keeps it when nobody renews it. Keepalive is the
// renewing (Redisson: watchdog), on unless switched off. The trust deadline is the local instant, ahead of the TTL's end,
// after which a holder must stop: counted from before the last request that the store answered, on a clock that goes on
// while the machine is suspended. A fencing token is a number that only rises from holder to holder. Lost means ended
// without Unlock; unknown means that the store did not answer.
//
// # Waiting
//
// The goroutines of one Client that want one name queue in memory; one of them contends in the store. Unlock passes the
// lease to the next of them without asking the store, for at most a few milliseconds and a bounded number of times, then
// other processes have their turn.
package pawl
