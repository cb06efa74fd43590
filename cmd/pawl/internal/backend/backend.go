// Package backend opens the store that a URL names.
package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/etcdlock"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redislock"
	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/zklock"
)

// openers is the one table of the stores that this build has.
var openers = map[string]func(ctx context.Context, raw, prefix string) (driver.Driver, error){
	"mem":        func(context.Context, string, string) (driver.Driver, error) { return memlock.New(), nil },
	"sqlite":     openSQL,
	"postgres":   openSQL,
	"postgresql": openSQL,
	"mysql":      openSQL,
	"mariadb":    openSQL,
	"redis":      openRedis,
	"rediss":     openRedis,
	"unix":       openRedis,
	"redis+unix": openRedis,

	"redis+sentinel":  openRedis,
	"rediss+sentinel": openRedis,
	"redis+cluster":   openRedis,
	"rediss+cluster":  openRedis,
	"redlock":         openQuorum,

	"etcd":      openEtcd,
	"etcds":     openEtcd,
	"zk":        openZooKeeper,
	"zookeeper": openZooKeeper,
}

// openSQL takes the layout from the URL: pawl's own tables, or those of others.
func openSQL(ctx context.Context, raw, prefix string) (driver.Driver, error) {
	if d, err := openLayout(ctx, raw, prefix); d != nil || err != nil {
		return d, err
	}
	return sqllock.Open(ctx, raw, &sqllock.Options{Prefix: prefix})
}

// openRedis takes the layout from the URL: Redisson's, or plain strings.
func openRedis(ctx context.Context, raw, prefix string) (driver.Driver, error) {
	_, query, _ := strings.Cut(raw, "?")
	if q, _ := url.ParseQuery(query); q.Get("layout") == "string" {
		return redislock.OpenPlain(ctx, raw, &redislock.PlainOptions{Prefix: prefix})
	}
	return redislock.Open(ctx, raw, &redislock.Options{Prefix: prefix})
}

func openEtcd(ctx context.Context, raw, prefix string) (driver.Driver, error) {
	return etcdlock.Open(ctx, raw, &etcdlock.Options{Prefix: prefix})
}

func openZooKeeper(ctx context.Context, raw, prefix string) (driver.Driver, error) {
	if prefix != "" {
		return nil, &URLError{"ZooKeeper takes no --prefix: put the locks under a path of their own, zk://host/path"}
	}
	return zklock.Open(ctx, raw, nil)
}

var aliases = map[string]string{
	"pg": "postgres", "sentinel": "redis+sentinel", "redis-sentinel": "redis+sentinel",
	"cluster": "redis+cluster", "redis-cluster": "redis+cluster", "sqlite3": "sqlite", "file": "sqlite", "memory": "mem",
}

// URLError says that a URL can never be opened by this build. It never shows more of it than the scheme.
type URLError struct{ Text string }

func (e *URLError) Error() string { return e.Text }

// Open connects to the store at raw; ctx bounds the connecting. Every name is stored with prefix in front, as the store's
// own option has it.
func Open(ctx context.Context, raw, prefix string) (driver.Driver, error) {
	scheme, err := Scheme(raw)
	if err != nil {
		return nil, err
	}
	d, err := openers[scheme](ctx, raw, prefix)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(raw), err)
	}
	return d, nil
}

// Kind is what kind of store raw names: redis (also over TLS or a socket, behind Sentinels, a cluster), redlock, etcd, zk,
// postgres, mysql, sqlite or mem.
func Kind(raw string) string {
	switch scheme, _ := Scheme(raw); scheme {
	case "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		return "redis"
	case "postgresql":
		return "postgres"
	case "mariadb":
		return "mysql"
	case "etcds":
		return "etcd"
	case "zookeeper":
		return "zk"
	default:
		return scheme
	}
}

// Schemes are those that work, sorted.
func Schemes() []string { return slices.Sorted(maps.Keys(openers)) }

// Scheme is the scheme of raw, if this build can open it; else the error is a *URLError.
func Scheme(raw string) (string, error) {
	works := "what works: " + strings.Join(Schemes(), ", ")
	scheme, _, ok := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "mem" && scheme != "sqlite" && !strings.HasPrefix(raw[len(scheme):], "://") {
		return "", &URLError{"the backend is a URL such as redis://localhost:6379 or sqlite:///var/lib/locks.db, beginning with a scheme and ://; " + works}
	}
	if openers[scheme] != nil {
		return scheme, nil
	}
	text := fmt.Sprintf("unknown backend %q", scheme)
	if near := closest(scheme); near != "" {
		text += fmt.Sprintf(": did you mean %s://?", near)
	}
	return "", &URLError{text + "; " + works}
}

// closest is the known scheme that a mistyped one is probably meant to be, or "".
func closest(s string) string {
	if a := aliases[s]; a != "" {
		return a
	}
	best, at := "", 3
	for _, k := range Schemes() {
		if d := distance(s, k); d < at && d < len(k) {
			best, at = k, d
		}
	}
	return best
}

// distance is how many letters must be inserted, dropped or changed to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			up := row[j+1]
			cost := diag
			if a[i] != b[j] {
				cost = 1 + min(diag, up, row[j])
			}
			diag, row[j+1] = up, cost
		}
	}
	return row[len(b)]
}

// Redact is raw without user, password, parameters and fragment.
func Redact(raw string) string {
	hosts := ""
	if scheme, rest, ok := strings.Cut(raw, "://"); ok && openers[strings.ToLower(scheme)] != nil {
		end := strings.IndexAny(rest, "/?#")
		if end < 0 {
			end = len(rest)
		}
		at := strings.LastIndexByte(rest[:end], '@') + 1
		if first, others, several := strings.Cut(rest[at:end], ","); several {
			hosts, raw = ","+others, scheme+"://"+rest[:at]+first+rest[end:]
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		scheme, _, _ := strings.Cut(raw, ":")
		return strings.ToLower(scheme) + "://…"
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	u.Host += hosts
	if u.Opaque != "" {
		u.Opaque = ""
	}
	return u.String()
}

// Identity tells stores apart: it is the same for two URLs that name the same store in the same words, whoever logs in. It
// is empty for a store that no other process has. It has no password.
func Identity(raw, prefix string) string {
	kind := Kind(raw)
	_, query, _ := strings.Cut(raw, "?")
	q, _ := url.ParseQuery(query)
	maps.DeleteFunc(q, func(name string, _ []string) bool {
		return strings.Contains(name, "user") || strings.Contains(name, "pass")
	})
	where := Redact(raw)
	switch kind {
	case "mem":
		return ""
	case "sqlite":
		path, _, _ := strings.Cut(raw, "?")
		_, path, _ = strings.Cut(path, ":")
		where = strings.TrimPrefix(path, "//")
		if path, err := url.PathUnescape(where); err == nil {
			where = path
		}
		if path, err := filepath.Abs(where); err == nil {
			where = path
		}
	}
	return strings.Join([]string{kind, where, q.Encode(), prefix}, "\x00")
}

// Local is the URL of the SQLite file in the user's state directory, which is made if it does not exist.
func Local() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "pawl")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("no folder for the locks of this machine: %w; choose a store with --backend or PAWL_BACKEND", err)
	}
	path := filepath.ToSlash(filepath.Join(dir, "locks.db"))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	return (&url.URL{Scheme: "sqlite", Path: path}).String(), nil
}

func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil // the specification wants relative ones ignored
	}
	if dir := os.Getenv("LOCALAPPDATA"); runtime.GOOS == "windows" && dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", errors.New("no home folder for the locks of this machine: set HOME or XDG_STATE_HOME, or choose a store with --backend or PAWL_BACKEND")
	}
	return filepath.Join(home, ".local", "state"), nil
}
