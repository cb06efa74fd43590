// Command bench measures pawl on a Redis server that it starts for itself, beside the lock that most programs begin
// with: SET NX PX, a script that deletes its own value, and a new try every 10 ms. Both run in the same process against
// the same server, in interleaved rounds; the ratio of their medians is the figure to quote.
//
//	go run . [-rounds 3] [-for 2s] [-goroutines 1000] [-leases 10000] [-json]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/pawl-lock/pawl"
)

func main() {
	rounds := flag.Int("rounds", 3, "rounds of each client, interleaved")
	per := flag.Duration("for", 2*time.Second, "length of a round")
	goroutines := flag.Int("goroutines", 1000, "goroutines on the hot key")
	leases := flag.Int("leases", 10000, "leases held at once")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *per <= 0 || *goroutines < 1 || *leases < 1 {
		fmt.Fprintln(os.Stderr, "bench: all numbers must be positive, and there are no arguments")
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := run(ctx, plan{*rounds, *per, *goroutines, *leases, pawl.DefaultTTL}, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		e.Encode(r)
		return
	}
	r.print(os.Stdout)
}
