package redislock

import (
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/redislock/internal/wire"
)

// What a server before 6.2 answers to a script with a command that it does not have.
func TestOldServersAnswer(t *testing.T) {
	t.Parallel()
	err := answered(wire.Refusal("ERR Error running script (call to f_3b6dfeb36a957d545c7522ae54ce58a7381da7f5): @user_script:36: " +
		"@user_script: 36: Unknown Redis command called from Lua script"))
	if !strings.Contains(err.Error(), "must be Redis 6.2 or later") || isNotDone(err) {
		t.Errorf("%v", err)
	}
}
