package seckill

import (
	"fmt"
	"slices"
	"strings"
)

// strategy is one way to sell.
type strategy struct {
	name   string
	about  string
	safe   bool // promises never to sell more than there is, nor twice to one buyer
	broken bool // expected to break in every run
	store  bool // needs the lock store
	naive  bool // as a plain key, without pawl
	pauses bool // servers are stopped between read and write
	token  bool // needs fencing tokens
	parts  int  // rows that the stock is split in; 0: one
	sell   func(*shop) sellFunc
}

// strategies in the order of the table: the classic mistakes, the database alone, pawl, pawl under pauses.
var strategies = []strategy{
	{name: "none", about: "read, check, write", broken: true, sell: (*shop).none},
	{name: "process-mutex", about: "one mutex in each server process", broken: true, sell: (*shop).processMutex},
	{name: "setnx-del", about: "a lock that expires during the work and is deleted by whoever ends", broken: true, store: true, naive: true, sell: (*shop).setnxDel},
	{name: "row-update", about: "UPDATE … WHERE stock > 0", safe: true, sell: (*shop).rowUpdate},
	{name: "lock", about: "pawl TryLock, or else: busy, try again", safe: true, store: true, sell: (*shop).tryLock},
	{name: "lock-wait", about: "pawl Lock: wait in line", safe: true, store: true, sell: (*shop).lockWait},
	{name: "striped", about: "pawl Striped: the stock in parts, each with its own lock", safe: true, store: true, parts: 8, sell: (*shop).striped},
	{name: "lock-paused", about: "pawl without tokens, holders paused past their TTL: may oversell", store: true, pauses: true, sell: (*shop).lockPaused},
	{name: "lock+token", about: "the same pauses, the token claimed before the read", safe: true, store: true, pauses: true, token: true, sell: (*shop).lockToken},
}

func strategyNames() []string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	return names
}

func findStrategy(name string) (strategy, bool) {
	i := slices.IndexFunc(strategies, func(s strategy) bool { return s.name == name })
	if i < 0 {
		return strategy{}, false
	}
	return strategies[i], true
}

// choose turns names into strategies, in the order of the table, each once. No names mean all.
func choose(names []string) ([]strategy, error) {
	if len(names) == 0 {
		return strategies, nil
	}
	for _, n := range names {
		if _, ok := findStrategy(n); !ok {
			return nil, fmt.Errorf("unknown strategy %q: there are %s", n, strings.Join(strategyNames(), ", "))
		}
	}
	var chosen []strategy
	for _, s := range strategies {
		if slices.Contains(names, s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}
