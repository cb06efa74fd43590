package pawl_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A module that requires the root module must not inherit version floors of stores that it does not use, nor of our test
// libraries: the root requires nothing, its tests included.
func TestRootRequiresNothing(t *testing.T) {
	b, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); strings.Contains(s, "require") || strings.Contains(s, "replace") {
		t.Errorf("go.mod of the root module must require nothing:\n%s", s)
	}
	if _, err := os.Stat("go.sum"); err == nil {
		t.Error("the root module has a go.sum")
	}
}

// The program in both READMEs is the body of Example, which runs.
func TestReadmeProgram(t *testing.T) {
	src, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	body := regexp.MustCompile(`(?s)// README begins\n(.*?)\t// README ends`).FindStringSubmatch(string(src))
	if body == nil {
		t.Fatal("example_test.go has no README part")
	}
	var lines []string
	for line := range strings.Lines(body[1]) {
		lines = append(lines, strings.TrimPrefix(line, "\t"))
	}
	want := strings.TrimSpace(strings.Join(lines, ""))
	for _, name := range []string{"README.md", "README.zh-CN.md"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "```go\n"+want+"\n```") {
			t.Errorf("%s does not show this program:\n%s", name, want)
		}
	}
}
