package seckill

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// outcome is what a run of the program left.
type outcome struct {
	code           int
	stdout, stderr string
}

// program runs this test binary as pawl, in an empty temporary folder, and checks that the folder is empty again.
func program(t *testing.T, args ...string) outcome {
	t.Helper()
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"seckill"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	mustBeEmpty(t, tmp)
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		t.Errorf("%s was left behind", f.Name())
	}
}

// parse reads --json, refusing fields that are not of the published shape.
func parse(t *testing.T, s string) report {
	t.Helper()
	var r report
	d := json.NewDecoder(strings.NewReader(s))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	for i := range r.Strategies {
		r.Strategies[i].strategy, _ = findStrategy(r.Strategies[i].Name)
	}
	return r
}

func TestSale(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "sale.html")
	if err := os.WriteFile(page, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := program(t, "--buyers", "600", "--stock", "60", "--json", "--html", page)
	if o.code != 0 {
		t.Fatalf("exit code %d: %s", o.code, o.stderr)
	}
	if strings.ContainsAny(o.stderr, "\r\x1b") {
		t.Errorf("stderr is no terminal: got %q", o.stderr)
	}
	r := parse(t, o.stdout)
	var names []string
	for _, s := range r.Strategies {
		names = append(names, s.Name)
		if s.Sold != s.Oversold+60-s.Unsold {
			t.Errorf("%s: sold %d, oversold %d, unsold %d do not add up", s.Name, s.Sold, s.Oversold, s.Unsold)
		}
		if s.Safe && (s.Sold != 60 || s.Duplicates != 0) {
			t.Errorf("%s: sold %d with %d duplicates, want 60 and 0", s.Name, s.Sold, s.Duplicates)
		}
		if s.strategy.broken && s.Oversold == 0 {
			t.Errorf("%s did not oversell", s.Name)
		}
		if s.BuyersPerS <= 0 || s.Seconds <= 0 || s.P99 < s.P50 {
			t.Errorf("%s: figures make no sense: %+v", s.Name, s)
		}
		if (s.RefusedStale > 0) != (s.Name == "lock+token") {
			t.Errorf("%s: %d stale writes refused", s.Name, s.RefusedStale)
		}
	}
	if !slices.Equal(names, strategyNames()) {
		t.Errorf("got strategies %v, want %v", names, strategyNames())
	}

	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	mustLookLikeAPage(t, string(html))
	if left, _ := os.ReadDir(filepath.Dir(page)); len(left) != 1 {
		t.Errorf("got %v beside the page, want nothing", left)
	}
}

// Buyers press again until everything is sold, even if there is one item for each of them.
func TestSaleWithoutOneBuyerTooMany(t *testing.T) {
	for _, c := range []struct {
		buyers, stock string
		sold, unsold  int
	}{{"40", "40", 40, 0}, {"7", "30", 7, 23}, {"1", "1", 1, 0}} {
		t.Run(c.buyers+"of"+c.stock, func(t *testing.T) {
			t.Parallel()
			o := program(t, "--buyers", c.buyers, "--stock", c.stock, "--strategy", "row-update,lock", "--strategy", "lock-wait,striped,lock+token", "--servers", "2", "--json")
			if o.code != 0 {
				t.Fatalf("exit code %d: %s", o.code, o.stderr)
			}
			r := parse(t, o.stdout)
			if len(r.Strategies) != 5 {
				t.Fatalf("got %d strategies, want 5", len(r.Strategies))
			}
			for _, s := range r.Strategies {
				if s.Sold != c.sold || s.Unsold != c.unsold || s.Duplicates != 0 || s.Oversold != 0 {
					t.Errorf("%+v: want %d sold, %d unsold", s, c.sold, c.unsold)
				}
			}
		})
	}
}

func TestTableAndVerdict(t *testing.T) {
	t.Parallel()
	o := program(t, "--buyers", "30", "--stock", "30", "--strategy", "none,lock", "--seed", "7", "--rate", "3000")
	if o.code != codeFailed {
		t.Errorf("exit code %d, want %d", o.code, codeFailed)
	}
	if want := "pawl: seckill: none is broken but did not oversell this time\n"; o.stderr != want {
		t.Errorf("stderr: got %q, want %q", o.stderr, want)
	}
	for _, want := range []string{"30 buyers, 30 items, 3 servers, seed 7, locks in SQLite\n\nSTRATEGY  SOLD  OVERSOLD", "  not reproduced\n", "  exact\n"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, o.stdout)
		}
	}
}

func TestJSONShape(t *testing.T) {
	r := report{Buyers: 9, Stock: 2, Servers: 3, Strategies: []result{
		{Name: "lock+token", Safe: true, Sold: 2, RefusedStale: 1, BuyersPerS: 12.34567, P50: 1, P99: 2.0001, Seconds: 0.5, errors: 3, lastErr: "x"},
	}}
	var b bytes.Buffer
	if err := r.writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	const want = `{"buyers":9,"stock":2,"servers":3,"strategies":[{"name":"lock+token","safe":true,"sold":2,"oversold":0,"duplicates":0,` +
		`"refused_stale":1,"unsold":0,"buyers_per_s":12.346,"p50_ms":1,"p99_ms":2,"seconds":0.5}]}` + "\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
}

func TestVerdicts(t *testing.T) {
	r := report{Buyers: 50, Stock: 10}
	for _, c := range []struct {
		name                             string
		sold, oversold, duplicates, fail int
		word                             string
	}{
		{"lock", 10, 0, 0, 0, "exact"},
		{"lock", 11, 1, 0, 1, "BROKE ITS PROMISE"},
		{"lock", 10, 0, 1, 1, "BROKE ITS PROMISE"},
		{"lock+token", 9, 0, 0, 1, "LEFT SOME UNSOLD"},
		{"none", 10, 0, 0, 1, "not reproduced"},
		{"none", 11, 1, 0, 0, "oversold"},
		{"lock-paused", 12, 2, 0, 0, "oversold (allowed)"},
		{"lock-paused", 10, 0, 0, 0, "behaved this time"},
		{"lock-paused", 10, 0, 1, 0, "sold twice to one buyer"},
	} {
		st, _ := findStrategy(c.name)
		word, failure := r.verdict(result{Name: c.name, Safe: st.safe, strategy: st, Sold: c.sold, Oversold: c.oversold, Duplicates: c.duplicates})
		if word != c.word || (failure != "") != (c.fail == 1) {
			t.Errorf("%+v: got %q, %q", c, word, failure)
		}
	}
}

func mustLookLikeAPage(t *testing.T, html string) {
	t.Helper()
	if n := strings.Count(html, "echarts.init(document.getElementById"); n != 4 {
		t.Errorf("got %d charts, want 4", n)
	}
	_, afterLibrary, _ := strings.Cut(html, "</script>")
	if m := regexp.MustCompile(`<(script|link|img|iframe)[^>]*(src|href)=`).FindString(afterLibrary); m != "" {
		t.Errorf("the page loads something from elsewhere: %s", m)
	}
	for _, want := range []string{"<!DOCTYPE html>", "lock-paused", "the token claimed before the read", "Apache Software Foundation", "</html>"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestPageEscapes(t *testing.T) {
	r := report{Buyers: 1, Stock: 1, Servers: 1, Strategies: []result{{Name: "<b>&"}}}
	var b bytes.Buffer
	if err := r.writePage(&b, 1, "SQLite", time.Unix(0, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<td><b>&") {
		t.Error("a name goes into the page as HTML")
	}
}
