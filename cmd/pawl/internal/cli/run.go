package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/child"
)

// runOptions are the flags of pawl run.
type runOptions struct {
	nonblock, skip   bool
	wait             time.Duration
	conflict         int
	shared           bool
	exclusive        bool
	permits          int
	fair             bool
	command          string
	ttl              time.Duration
	killAfter        time.Duration
	onLoss           onLoss
	lostCode         int
	minHold, maxHold time.Duration
	lockDelay        time.Duration
	passStdin        bool
	noStdin          bool
	foreground       bool
	keyFromCommand   bool
	reason           string
	printLock        int
	statusFD         int
	noFork, close    bool

	waits  bool // --wait was given
	graced bool // --kill-after was given
}

// shortestTTL is what a process can be supervised in: to start one and to kill one takes some milliseconds, on a busy
// machine some more.
const shortestTTL = 100 * time.Millisecond

func newRun(g *globals) *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use:   "run [flags] NAME [--] COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Run a command while holding the lock NAME, and end it before anybody else can
hold that lock.

COMMAND is run as it is, without a shell. Flags end at NAME.

The lock is a lease: pawl renews it for as long as the command runs. If it can
not be renewed, or is taken away, the command and all of its process group get
SIGTERM and then SIGKILL, so that nothing of it is left at the moment from which
another may hold the lock. The lock is given back when the whole group has ended.

A pawl run inside COMMAND that names the same store and NAME joins the lock.`,
		Example: `  pawl run backup -- pg_dump -f /var/backups/db.sql db
  pawl run -q cron:invoices -- ./send-invoices           # skip it if it is running
  pawl run -w 30 deploy -- make deploy                   # wait 30 s at most
  pawl run -c 'cd /srv && git pull && make' deploy       # by a shell`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			o.waits, o.graced = c.Flags().Changed("wait"), c.Flags().Changed("kill-after")
			j, err := o.job(args, c.ArgsLenAtDash() == 0, g)
			if err != nil {
				return err
			}
			return j.run()
		},
	}
	c.SetUsageTemplate(c.UsageTemplate() + runNotes)
	f := c.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	f.BoolVarP(&o.nonblock, "nonblock", "n", false, "do not wait: fail if the lock is held")
	f.VarP((*duration)(&o.wait), "wait", "w", "wait this long at most; 0 is -n (default: for ever)")
	f.IntVarP(&o.conflict, "conflict-exit-code", "E", exitConflict, "exit `code` when the lock is held by another")
	f.BoolVarP(&o.skip, "skip", "q", false, "exit 0, silently, when the lock is held by another")
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "write side of a read-write lock, whose readers say -s")
	f.BoolVarP(&o.shared, "shared", "s", false, "read side of a read-write lock, whose writers say -x")
	f.IntVarP(&o.permits, "permits", "p", 0, "one of `N` permits of a semaphore; all users of NAME say the same N")
	f.BoolVar(&o.fair, "fair", false, "first come, first served; all users of NAME say so")
	f.StringVarP(&o.command, "command", "c", "", "run `STRING` by $SHELL or /bin/sh, instead of COMMAND")
	o.ttl = pawl.DefaultTTL
	f.VarP((*duration)(&o.ttl), "ttl", "t", "how long the lock outlives a crashed holder; it is renewed every third of this")
	f.VarP((*duration)(&o.killAfter), "kill-after", "k", "time between SIGTERM and SIGKILL, a third of the ttl at most\n(default: 5s or a fifth of the ttl)")
	f.Var(&o.onLoss, "on-loss", "what the command gets when the lock is lost:\n`ACTION` is term, kill, warn (only a message) or signal=SIG, which stands in for SIGTERM")
	f.IntVar(&o.lostCode, "lost-exit-code", exitLost, "exit `code` when the lock was lost")
	f.Var((*duration)(&o.minHold), "min-hold", "keep the name taken this long, even if the command ends sooner")
	f.Var((*duration)(&o.maxHold), "max-hold", "end the command after this, as if the lock were lost")
	f.Var((*duration)(&o.lockDelay), "lock-delay", "keep the name taken this long after a command that failed")
	f.BoolVar(&o.passStdin, "pass-stdin", true, "the command reads pawl's standard input")
	f.BoolVar(&o.noStdin, "no-stdin", false, "the command's standard input is empty")
	f.BoolVar(&o.foreground, "foreground", false, "keep the command in pawl's process group; signals then reach its first process only")
	f.BoolVar(&o.keyFromCommand, "key-from-command", false, "no NAME: it is a hash of COMMAND and its arguments")
	f.StringVar(&o.reason, "reason", "", "`TEXT` stored with the lock, for people who look at it")
	f.IntVar(&o.printLock, "print-lock", 0, "before the command starts, print name, fencing token and ttl to descriptor `FD`\n(--print-lock alone: standard error)")
	f.Lookup("print-lock").NoOptDefVal = "2"
	f.IntVar(&o.statusFD, "status-fd", 0, "at the end, write what happened to descriptor `FD`, as JSON")
	f.BoolVarP(&o.noFork, "no-fork", "F", false, "refused: a lease needs a living process that renews it")
	f.BoolVarP(&o.close, "close", "o", false, "refused: the command has no descriptor that holds the lock")
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 && !o.keyFromCommand {
			return nil, cobra.ShellCompDirectiveNoFileComp // the NAME
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	c.RegisterFlagCompletionFunc("on-loss", cobra.FixedCompletions([]string{"term", "kill", "warn", "signal="}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

const runNotes = `
Exit codes:
  the command's own, or 128+n if signal n ended it; and:
  1    the lock is held by another (-E)        75   the lock was lost (--lost-exit-code)
  64   usage                                   69   the store cannot be reached
  70   internal error                          77   the store refuses the login or the access
  126  COMMAND cannot be executed              127  COMMAND was not found
  128+n  interrupted by signal n before the lock was taken
  A line on standard error says why whenever the code is not the command's own.

Environment of the command:
  PAWL_HELD=1  PAWL_LOCK (NAME)  PAWL_FENCE (fencing token, 0 if there is none)  PAWL_OWNER  PAWL_TTL_MS
  PAWL_MODE (exclusive, fair, write, read, permits)  PAWL_BACKEND_KIND (such as redis)
  PAWL_LOST_FD (a descriptor that reads end-of-file once the lock is lost)
  PAWL_JOIN (by which a pawl run of the same NAME inside the command works under this lock, instead of waiting for it)
`

// job is what pawl run is to do.
type job struct {
	*runOptions
	g    *globals
	name string
	path string // of the command
	argv []string
}

// job checks the flags and the operands.
func (o *runOptions) job(args []string, dashFirst bool, g *globals) (*job, error) {
	j := &job{runOptions: o, g: g}
	if err := o.check(); err != nil {
		return nil, err
	}
	if !o.keyFromCommand {
		if len(args) == 0 {
			return nil, usage("run: a NAME and a COMMAND are missing.\nSee 'pawl run --help'.")
		}
		j.name, args = args[0], args[1:]
		if j.name == "" {
			return nil, usage("run: the lock's NAME is empty")
		}
		if digits(j.name) && o.nonblock && !dashFirst {
			return nil, usage("run: -n takes no number: it means \"do not wait\", as in flock. For a semaphore of %s permits say --permits %[1]s; "+
				"for a lock that is really named %[1]s say: pawl run -n -- %[1]s COMMAND", j.name)
		}
	}
	dash := len(args) > 0 && args[0] == "--"
	if dash {
		args = args[1:]
	}
	if !dash && len(args) == 2 && args[0] == "-c" && o.command == "" { // flock NAME -c STRING
		o.command, args = args[1], nil
	}
	switch {
	case o.command != "" && len(args) > 0:
		return nil, usage("run: -c and a COMMAND (%q): say one of them", args[0])
	case o.command != "":
		shell, flag := "/bin/sh", "-c"
		if s := os.Getenv("SHELL"); s != "" {
			shell = s
		} else if runtime.GOOS == "windows" {
			shell, flag = os.Getenv("COMSPEC"), "/C"
		}
		args = []string{shell, flag, o.command}
	case len(args) == 0 && o.keyFromCommand:
		return nil, usage("run: a COMMAND is missing.\nSee 'pawl run --help'.")
	case len(args) == 0:
		return nil, usage("run: a COMMAND to run under the lock %q is missing.\nSee 'pawl run --help'.", j.name)
	case args[0] == "":
		return nil, usage("run: the COMMAND is empty")
	case args[0][0] == '-' && !dash && !dashFirst:
		return nil, usage("run: %q is no COMMAND: flags go before the NAME. If it is one, put -- before it", args[0])
	}
	j.argv = args
	if o.keyFromCommand {
		sum := sha256.Sum256([]byte(strings.Join(args, "\x00")))
		j.name = "command:" + filepath.Base(args[0]) + ":" + hex.EncodeToString(sum[:8])
	}
	return j, nil
}

func (o *runOptions) check() error {
	modes := 0
	for _, on := range []bool{o.shared, o.exclusive, o.permits != 0, o.fair} {
		if on {
			modes++
		}
	}
	switch {
	case o.noFork:
		return usage("run: -F (--no-fork) is not possible: a lease needs a living process that renews it, and pawl is that process")
	case o.close:
		return usage("run: -o (--close) has no meaning here: the command has no descriptor that holds the lock. " +
			"Background processes of the command keep it only as long as they stay in its process group")
	case modes > 1:
		return usage("run: -s, -x, --permits and --fair are different kinds of lock: say one of them")
	case o.permits < 0:
		return usage("run: --permits %d: at least 1", o.permits)
	case o.nonblock && o.waits && o.wait > 0:
		return usage("run: -n does not wait, and -w %s does: say one of them", short(o.wait))
	case o.conflict < 0 || o.conflict > 255:
		return usage("run: --conflict-exit-code %d: 0 to 255", o.conflict)
	case o.lostCode < 0 || o.lostCode > 255:
		return usage("run: --lost-exit-code %d: 0 to 255", o.lostCode)
	case o.ttl < shortestTTL:
		return usage("run: --ttl %v: at least %v, since a command has to be started and ended within it", o.ttl, shortestTTL)
	case o.maxHold > 0 && o.minHold > o.maxHold:
		return usage("run: --min-hold %s is longer than --max-hold %s", short(o.minHold), short(o.maxHold))
	}
	if o.waits && o.wait == 0 {
		o.nonblock = true
	}
	if o.noStdin {
		o.passStdin = false
	}
	for _, d := range []struct {
		flag string
		fd   int
	}{{"print-lock", o.printLock}, {"status-fd", o.statusFD}} {
		if d.fd == 0 {
			continue
		}
		if d.fd < 0 || d.fd > math.MaxInt32 || child.Keep(d.fd) != nil {
			return usage("run: --%s %d: this descriptor is not open", d.flag, d.fd)
		}
	}
	return nil
}

// grace is the time between SIGTERM and SIGKILL. It must leave a lease room to be renewed in spite of a failed attempt.
func (o *runOptions) grace() (d time.Duration, capped bool) {
	switch most := o.ttl / 3; {
	case !o.graced:
		return min(5*time.Second, o.ttl/5), false
	case o.killAfter > most:
		return most, true
	}
	return o.killAfter, false
}

// lock is the lock that the flags name.
func (j *job) lock(c *pawl.Client) pawl.Locker {
	switch {
	case j.shared:
		return c.RWMutex(j.name).RLocker()
	case j.exclusive:
		return c.RWMutex(j.name)
	case j.permits > 0:
		return c.Semaphore(j.name, j.permits)
	case j.fair:
		return c.FairMutex(j.name)
	}
	return c.Mutex(j.name)
}

// mode is the kind of it, for people and scripts.
func (o *runOptions) mode() string {
	switch {
	case o.shared:
		return "read"
	case o.exclusive:
		return "write"
	case o.permits > 0:
		return "permits"
	case o.fair:
		return "fair"
	}
	return "exclusive"
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// onLoss is the flag --on-loss.
type onLoss struct {
	policy lossPolicy
	signal os.Signal // nil: SIGTERM
}

func (l *onLoss) Set(s string) error {
	name, isSignal := strings.CutPrefix(s, "signal=")
	switch {
	case s == "term":
		*l = onLoss{}
	case s == "kill":
		*l = onLoss{policy: lossKill}
	case s == "warn":
		*l = onLoss{policy: lossWarn}
	case isSignal:
		sig, ok := child.ParseSignal(name)
		if !ok {
			return fmt.Errorf("unknown signal %q", name)
		}
		*l = onLoss{signal: sig}
	default:
		return fmt.Errorf("it is term, kill, warn or signal=SIG")
	}
	return nil
}

func (l *onLoss) String() string {
	switch {
	case l.policy == lossKill:
		return "kill"
	case l.policy == lossWarn:
		return "warn"
	case l.signal != nil:
		return "signal=" + child.SignalName(l.signal)
	}
	return "term"
}

func (l *onLoss) Type() string { return "ACTION" }
