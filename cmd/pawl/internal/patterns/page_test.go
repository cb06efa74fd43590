package patterns

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The pages in both languages show the programs of patterns_test.go, all of them, in their order, and name tests and strategies that
// there are.
func TestPages(t *testing.T) {
	t.Parallel()
	var programs []string
	for _, m := range regexp.MustCompile(`(?s)// page: \d+ \w+\n(.*?)\n\n// page:`).FindAllStringSubmatch(strings.ReplaceAll(read(t, "patterns_test.go"), "\n\n// page:", "\n\n// page:\n\n// page:"), -1) {
		programs = append(programs, m[1])
	}
	if len(programs) != 20 {
		t.Fatalf("patterns_test.go has %d programs, want two for each of ten traps", len(programs))
	}
	tests := read(t, "trap_test.go") + read(t, "cluster_test.go")
	strategies := read(t, filepath.Join("..", "seckill", "strategy.go"))
	for _, name := range []string{"patterns.md", "patterns.zh-CN.md"} {
		page := read(t, filepath.Join("..", "..", "..", "..", "docs", name))
		var shown []string
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)\n```").FindAllStringSubmatch(page, -1) {
			shown = append(shown, m[1])
		}
		for i := range max(len(shown), len(programs)) {
			if i >= len(shown) || i >= len(programs) || shown[i] != programs[i] {
				t.Errorf("docs/%s: program %d of %d is not the one of patterns_test.go, which has %d", name, i+1, len(shown), len(programs))
				break
			}
		}
		runs := regexp.MustCompile(`-run (Trap\d\d)`).FindAllStringSubmatch(page, -1)
		if len(runs) != 10 {
			t.Errorf("docs/%s names %d tests, want one for each trap", name, len(runs))
		}
		for _, m := range runs {
			if !strings.Contains(tests, "func Test"+m[1]) {
				t.Errorf("docs/%s names the test %s, which is not there", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`--strategy ([\w+,-]+)`).FindAllStringSubmatch(page, -1) {
			for s := range strings.SplitSeq(m[1], ",") {
				if !strings.Contains(strategies, `name: "`+s+`"`) {
					t.Errorf("docs/%s names the strategy %s, which is not there", name, s)
				}
			}
		}
	}
}
