package backend

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScheme(t *testing.T) {
	for raw, want := range map[string]string{"mem:": "mem", "MEM:": "mem", "sqlite:///a/b.db": "sqlite", "sqlite:b.db": "sqlite", "postgresql://h/b": "postgresql", "mysql://h/b": "mysql", "zk://h": "zk", "etcds://h": "etcds"} {
		if got, err := Scheme(raw); err != nil || got != want {
			t.Errorf("Scheme(%q) = %q, %v, want %q", raw, got, err, want)
		}
	}
	for raw, want := range map[string]string{
		"":                             "is a URL such as",
		"localhost:6379":               "is a URL such as",
		"me:s3cret@host":               "is a URL such as",
		"etdc://me:s3cret@h/":          "did you mean etcd://?",
		"sqlit:///x":                   "did you mean sqlite://?",
		"sqlite3:///x":                 "did you mean sqlite://?",
		"ftp://me:s3cret@h/?p=s3cret":  `unknown backend "ftp"`,
		"completely://me:s3cret@other": `unknown backend "completely"`,
	} {
		_, err := Scheme(raw)
		var u *URLError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), want) {
			t.Errorf("Scheme(%q): %v, want %q", raw, err, want)
			continue
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Scheme(%q) tells a secret: %v", raw, err)
		}
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://me:s3cret@host:6379/1?password=s3cret#s3cret": "redis://host:6379/1",
		"sqlite:///a%20b.db": "sqlite:///a%20b.db",
		"mem:":               "mem:",
		"redis+sentinel://me:s3cret@h1:1,h2:2/primary?sentinel_password=s3cret": "redis+sentinel://h1:1,h2:2/primary",
		"redlock://me:s3cret@h1,h2:2,h3?tls=true":                               "redlock://h1,h2:2,h3",
		"zk://me:s3cret@h1,h2:2,h3/app?timeout=9s":                              "zk://h1,h2:2,h3/app",
		"redlock://me:s3cret,x@[,h2":                                            "redlock://…",
		"redis://h:s3cret@[":                                                    "redis://…",
		"redis:me:s3cret@h":                                                     "redis:",
	} {
		if got := Redact(raw); got != want {
			t.Errorf("Redact(%q) = %q, want %q", raw, got, want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	for _, rest := range []string{"h:6379/0", "h/?x=y#z", "[", "%zz", "@h", "h\x7f"} {
		f.Add(rest)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		const secret = "s3cretW0rd"
		if got := Redact("redis://me:" + secret + "@" + rest); strings.Contains(got, secret) && !strings.Contains(rest, secret) {
			t.Errorf("Redact told the secret: %q", got)
		}
	})
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"redis://me:s3cret@h:1/0", "redis://h:1/0", true},
		{"redis://h:1/0", "redis://h:1/1", false},
		{"redis://h:1", "redis://h:2", false},
		{"redis://h:1?layout=string", "redis://h:1", false},
		{"redis+sentinel://h/p?sentinel_password=s3cret&db=2", "redis+sentinel://h/p?db=2", true},
		{"sqlite:locks.db", "sqlite://" + dir + "/locks.db", true},
		{"sqlite:locks.db", "sqlite:other.db", false},
		{"mysql://me:s3cret@h/d", "mysql://you@h/d", true},
		{"sqlite:locks.db?layout=plain", "sqlite:locks.db", false},
		{"postgres://h/d?layout=plain&table=a", "postgres://h/d?table=b&layout=plain", false},
		{"zk://h/a", "etcd://h/a", false},
	} {
		a, b := Identity(c.a, ""), Identity(c.b, "")
		if (a == b) != c.same {
			t.Errorf("%s and %s: %q and %q, want the same: %v", c.a, c.b, a, b, c.same)
		}
		if a == Identity(c.a, "app:") || strings.Contains(a+b, "s3cret") {
			t.Errorf("%s: %q with a prefix or a secret", c.a, a)
		}
	}
	if id := Identity("mem:", ""); id != "" {
		t.Errorf("mem: %q", id)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"redis", "redis", 0}, {"rediss", "redis", 1}, {"reids", "redis", 2}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestLocal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my state?")
	t.Setenv("XDG_STATE_HOME", dir)
	got, err := Local()
	if err != nil || !strings.HasSuffix(got, "/my%20state%3F/pawl/locks.db") {
		t.Errorf("Local() = %q, %v", got, err)
	}
	s, err := Open(t.Context(), got, "")
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	fi, err := os.Stat(filepath.Join(dir, "pawl"))
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v, want mode 0700", fi, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pawl", "locks.db")); err != nil {
		t.Errorf("the file is elsewhere: %v", err)
	}
}
