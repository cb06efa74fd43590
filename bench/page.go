package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// rounds says how many there are.
func rounds(set settings) string {
	if set.rounds == set.hotRounds {
		return plural(set.rounds, "interleaved round")
	}
	return fmt.Sprintf("%d interleaved rounds, %d where all want one key", set.rounds, set.hotRounds)
}

// page is the text that a run writes, in Markdown.
func (su *suite) page(set settings, began time.Time, cut error) string {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("")
	p("%s, %s on %d cores shared by clients and servers, %s, %s. %s.", began.Format("2006-01-02"), processor(), runtime.NumCPU(), kernel(),
		runtime.Version(), rounds(set))
	p("It took %s. Ratios are the point; absolute figures belong to that machine.", time.Since(began).Round(time.Second))
	if cut != nil {
		p("")
		p("**It was cut short** (%v): the figures are those of the part that was done.", cut)
	}
	p("")
	p("### Goals")
	p("")
	vs := judgeAll(su.results, set.length.Seconds())
	hits, known := 0, 0
	for _, v := range vs {
		if v.known {
			known++
		}
		if v.hit {
			hits++
		}
	}
	p("%d of %d goals are met. Each ratio is the median of those of the rounds, with the lowest and the highest.", hits, len(vs))
	if known < len(vs) {
		p("%d could not be judged.", len(vs)-known)
	}
	p("")
	p("| case | goal | pawl | beside | ratio | spread | |")
	p("|---|---|---|---|---|---|---|")
	for _, v := range vs {
		mark := "**miss**"
		switch {
		case !v.known:
			mark = "not measured"
		case v.hit:
			mark = "hit"
		}
		p("| %s | %s | %s | %s | %s | %s | %s |", v.what, v.goal, v.pawl, v.beside, v.ratio, v.spread, mark)
	}
	p("")
	p("### At 1,000 concurrent")
	p("")
	p("The table that texts on distributed locks end on, for 1,000 keys and for one.")
	p("")
	p("```")
	bench.ClassicTable(&b, su.results)
	p("```")
	p("")
	p("### All figures")
	for _, c := range bench.Cases() {
		rows := slices.DeleteFunc(slices.Clone(su.results), func(r bench.Result) bool { return r.Case != c.Name })
		if len(rows) == 0 {
			continue
		}
		p("")
		p("#### %s", c.Name)
		p("")
		p("%s.", c.About)
		p("")
		resultTable(&b, c, rows)
	}
	p("")
	p("### Servers and clients")
	p("")
	p("| store | version | settings |")
	p("|---|---|---|")
	for _, s := range su.stores {
		p("| %s | %s | %s |", s.kind, s.version, s.settings)
	}
	p("")
	p("| client | version | settings |")
	p("|---|---|---|")
	for _, c := range about {
		p("| %s | %s | %s |", c.name, module(c.module), c.settings)
	}
	p("")
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "One " + what
	}
	return fmt.Sprintf("Medians of %d %ss", n, what)
}

func resultTable(w io.Writer, c bench.Case, rs []bench.Result) {
	row := func(cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	var head []string
	switch c.Kind {
	case bench.Handover:
		head = []string{"store", "client", "p50", "spread", "p99", "max", "commands each"}
	case bench.Idle, bench.Held:
		head = []string{"store", "client", "commands/s", "client CPU ms/s", "goroutines each", "heap bytes each"}
	default:
		head = []string{"store", "client", "cycles/s", "spread", "mean", "p50", "p99", "p99.9", "max", "commands/cycle", "bytes/cycle", "client CPU/cycle", "server CPU/cycle"}
		if !c.Own {
			head = append(head, "Jain", "starved", "shares")
		}
	}
	row(head...)
	row(slices.Repeat([]string{"---"}, len(head))...)
	for i := range rs {
		r := &rs[i]
		cells := []string{r.Backend, r.Client}
		switch {
		case r.Rounds == 0:
			cells = append(cells, "failed: "+strings.ReplaceAll(r.Error, "|", "/"))
		case c.Kind == bench.Handover:
			cells = append(cells, bench.Micros(r.P50), r.Range("p50_us"), bench.Micros(r.P99), bench.Micros(r.Max), bench.Number(r.CommandsPerCycle, 1))
		case c.Kind == bench.Idle || c.Kind == bench.Held:
			cells = append(cells, bench.Number(r.CommandsPerS, 1), bench.Number(r.ClientCPUMillisPerS, 1), bench.Number(r.GoroutinesPerItem, 2),
				bench.Number(r.HeapBytesPerItem, 0))
		default:
			cells = append(cells, bench.Number(r.CyclesPerS, 0), r.Range("cycles_per_s"), bench.Micros(r.Mean), bench.Micros(r.P50), bench.Micros(r.P99),
				bench.Micros(r.P999), bench.Micros(r.Max), bench.Number(r.CommandsPerCycle, 3), bench.Number(r.BytesPerCycle, 0), bench.Micros(r.ClientCPUPerCycle),
				bench.Micros(r.ServerCPUPerCycle))
			if !c.Own {
				shares := "-"
				if r.LowestShare != nil {
					shares = fmt.Sprintf("%.0f–%.0f %%", 100**r.LowestShare, 100**r.HighestShare)
				}
				cells = append(cells, bench.Number(r.Jain, 3), bench.Number(r.Starved, 0), shares)
			}
		}
		for len(cells) < len(head) {
			cells = append(cells, "")
		}
		row(cells...)
	}
}

// about is what has to be known of each client.
var about = []struct{ name, module, settings string }{
	{"pawl", "", "opened by its URL, no options but TTL 30 s; linger: 20 ms"},
	{"rueidislock", "github.com/redis/rueidis", "one key (KeyMajority 1), NOLOOP tracking, validity 30 s, extended every 10 s, requests bounded by 2 s"},
	{"bsm/redislock", "github.com/bsm/redislock", "over go-redis; TTL 30 s, a try every 10 ms; it does not renew"},
	{"redsync", "github.com/go-redsync/redsync/v4", "over go-redis; expiry 30 s, its default delay of 50 to 250 ms, tries without end; it does not renew"},
	{"SET NX PX, every 10 ms", "github.com/redis/rueidis", "the lock of many tutorials, with an owner and an expiry; it does not renew"},
	{limit, "", "no lock: SET NX PX and EVALSHA written to one socket, up to 64 at a time"},
	{"concurrency.Mutex", "go.etcd.io/etcd/client/v3", "TTL 30 s; a session for each that waits, opened beforehand; one session for different keys"},
	{"go-zookeeper Lock", "github.com/go-zookeeper/zk", "session timeout 30 s; one connection a process"},
	{"table, every 10 ms", "", "INSERT and DELETE of a row by its primary key, 64 connections; no expiry. PostgreSQL does not count statements that fail"},
	{"GET_LOCK", "github.com/go-sql-driver/mysql", "a connection for each that waits, opened beforehand"},
	{"pg_advisory_lock", "github.com/jackc/pgx/v5", "a connection for each that waits, opened beforehand"},
}

// module is the version of a dependency in this program.
func module(path string) string {
	info, ok := debug.ReadBuildInfo()
	if path == "" || !ok {
		return "-"
	}
	for _, d := range info.Deps {
		if d.Path == path {
			return strings.TrimPrefix(d.Path, "github.com/") + " " + d.Version
		}
	}
	return "-"
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + strings.TrimSpace(string(text))
}

// learn asks a store for its version.
func (st *store) learn() {
	st.version = "-"
	if len(st.hosts) == 0 {
		st.version = map[string]string{"sqlite": module("modernc.org/sqlite")}[st.kind]
		return
	}
	host := st.hosts[0]
	switch st.kind {
	case "redis", "redlock":
		if out, err := exec.Command("redis-server", "--version").Output(); err == nil {
			for word := range strings.FieldsSeq(string(out)) {
				if v, ok := strings.CutPrefix(word, "v="); ok {
					st.version = "Redis " + v
				}
			}
		}
	case "etcd":
		if resp, err := http.Get("http://" + host + "/version"); err == nil {
			defer resp.Body.Close()
			var v struct {
				Version string `json:"etcdserver"`
			}
			if json.NewDecoder(resp.Body).Decode(&v) == nil {
				st.version = "etcd " + v.Version
			}
		}
	case "zk":
		if conn, err := net.Dial("tcp", host); err == nil {
			defer conn.Close()
			io.WriteString(conn, "srvr")
			text, _ := io.ReadAll(conn)
			line, _, _ := strings.Cut(strings.TrimPrefix(string(text), "Zookeeper version: "), "\n")
			line, _, _ = strings.Cut(line, "-")
			st.version = "ZooKeeper " + strings.TrimRight(line, ",")
		}
	case "mysql", "postgres":
		if db, isMySQL, err := openDB(st.url); err == nil {
			defer db.Close()
			st.version = serverVersion(db, isMySQL)
		}
	}
}

func serverVersion(db *sql.DB, isMySQL bool) string {
	var v string
	if isMySQL {
		db.QueryRow("SELECT version()").Scan(&v)
		v, _, _ = strings.Cut(v, "-")
		return "MariaDB " + v
	}
	db.QueryRow("SHOW server_version").Scan(&v)
	v, _, _ = strings.Cut(v, " ")
	return "PostgreSQL " + v
}
