package redistest

import (
	"os"
	"strings"
	"testing"
)

// DocumentedACL is the ACL that package redislock documents, in the file doc, with what it wants besides in a topology: the
// beginning of its line, such as "in a cluster".
func DocumentedACL(t testing.TB, doc, topology string) []string {
	t.Helper()
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "ACL SETUSER pawl on >… ~* ")
	_, more, ok2 := strings.Cut(rest, topology)
	if !ok || !ok2 {
		t.Fatalf("%s has no ACL for %q", doc, topology)
	}
	rules, _, _ := strings.Cut(rest, "//\n")
	more, _, _ = strings.Cut(more, "\n")
	return strings.Fields(strings.ReplaceAll(rules, "//", "") + more)
}
