package uses

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// An account is a file with a number in it.
func balance(dir, account string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, account))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

func setBalance(dir, account string, n int) error {
	return os.WriteFile(filepath.Join(dir, account), strconv.AppendInt(nil, int64(n), 10), 0o600)
}

// bankProcess moves money from one account to another, as somebody who believes to be alone with both: it reads both balances,
// thinks, and writes what it has computed.
func bankProcess(w *worker) error {
	dir, from, to := w.args[0], w.args[1], w.args[2]
	rounds, err := strconv.Atoi(w.args[3])
	if err != nil {
		return err
	}
	locks, err := w.open(longTTL)
	if err != nil {
		return err
	}
	defer locks.Close()
	w.say("ready to go")
	w.told()
	n := 0
	for start := time.Now(); n < rounds && (n == 0 || time.Since(start) < bankTime); n++ {
		m := pawl.All(locks.Mutex("account:"+from), locks.Mutex("account:"+to))
		var leases pawl.Leases
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) { // the machine may be busy
			if leases, err = m.Lock(context.Background()); err == nil {
				break
			}
			if time.Since(begin) > patience {
				return err
			}
		}
		f, err := balance(dir, from)
		if err != nil {
			return err
		}
		t, err := balance(dir, to)
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		if err := errors.Join(setBalance(dir, from, f-1), setBalance(dir, to, t+1), leases.Err()); err != nil {
			return err
		}
		if err := leases.Unlock(); err != nil && !errors.Is(err, pawl.ErrUnknown) {
			return err
		}
	}
	w.say("moved %d", n)
	return nil
}

// bankTime is how long a process goes on, on a machine that is too busy for all the rounds.
const bankTime = 5 * time.Second

// bank: eight processes transfer between two accounts, half of them in each direction, and so with both locks in either order. All
// end, and the money is there.
func bank(t *testing.T, b *backend) {
	const processes, rounds, money = 8, 12, 1000
	want := map[string]int{"a": money, "b": money}
	dir := t.TempDir()
	for _, account := range []string{"a", "b"} {
		if err := setBalance(dir, account, money); err != nil {
			t.Fatal(err)
		}
	}
	var ps []*process
	order := func(k int) (from, to string) {
		if k%2 == 1 {
			return "b", "a"
		}
		return "a", "b"
	}
	for k := range processes {
		from, to := order(k)
		n := rounds
		if k == 0 {
			n++ // one more there than back, so that the balances change
		}
		ps = append(ps, b.process(t, "bank", dir, from, to, strconv.Itoa(n)))
	}
	for _, p := range ps {
		p.await(0, "ready")
	}
	begin := time.Now()
	for _, p := range ps {
		p.tell("go")
	}
	transfers := 0
	for k, p := range ps {
		n := int(p.await(0, "moved").number(1))
		from, to := order(k)
		want[from] -= n
		want[to] += n
		transfers += n
		p.finish()
	}
	for account, want := range want {
		if got, err := balance(dir, account); err != nil || got != want {
			t.Errorf("account %s: got %d, %v, want %d", account, got, err, want)
		}
	}
	t.Logf("%d transfers in %v", transfers, time.Since(begin))
}
