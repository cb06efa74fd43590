package redislock

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one atomic step.
type script struct {
	name, body, sha string
	clock           bool // the last of its keys is clockKey

	clustered *script // the same on a node of a cluster
}

var (
	locksScript     = stamping("locks")
	unlocksScript   = load("unlocks")
	lockScript      = stamping("lock")
	joinScript      = stamping("join")
	fairScript      = stamping("fair")
	unlockScript    = load("unlock")
	rwScript        = stamping("rw")
	unrwScript      = load("unrw")
	permitsScript   = stamping("permits")
	unpermitsScript = load("unpermits")
	renewScript     = load("renew")
	raiseScript     = load("raise")
	inspectScript   = load("inspect")
	lifeScript      = load("life")
)

var (
	include = regexp.MustCompile(`(?m)^--@ ([a-z]+)$`)
	comment = regexp.MustCompile(`(?m)^\s*--[^@\n].*\n`)
)

// load reads a script.
func load(name string) *script { return read(name, "nil") }

// stamping reads a script that numbers holds by the clock key, except in a cluster, where that would be on another node.
func stamping(name string) *script {
	s := read(name, "table.remove(KEYS)")
	s.clock = true
	return s
}

// read reads lua/name.lua, with a line "--@ other" replaced by lua/other.lua, and without comments.
func read(name, clock string) *script {
	body := include.ReplaceAllStringFunc(file(name), func(s string) string { return file(include.FindStringSubmatch(s)[1]) })
	body = comment.ReplaceAllString(body, "")
	s := newScript(name, "local cluster, clock = false, "+clock+"\n"+body)
	s.clustered = newScript(name, "local cluster, clock = true, nil\n"+body)
	return s
}

func newScript(name, body string) *script {
	sum := sha1.Sum([]byte(body))
	return &script{name: name, body: body, sha: hex.EncodeToString(sum[:])}
}

// command makes the command, with the whole script if the server did not know it by its hash.
func (s *script) command(whole bool, keys, args []string) wire.Command {
	if s.clock {
		keys = append(keys, clockKey)
	}
	return s.with(whole, keys, args)
}

// with is command with all keys.
func (s *script) with(whole bool, keys, args []string) wire.Command {
	if whole {
		return wire.Command{Name: "EVAL", Script: s.body, Keys: keys, Args: args}
	}
	return wire.Command{Name: "EVALSHA", Script: s.sha, Keys: keys, Args: args}
}

func file(name string) string {
	b, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redislock: " + err.Error()) // the binary was built without its scripts
	}
	return string(b)
}
