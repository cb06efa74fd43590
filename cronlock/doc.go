// Package cronlock lets the jobs of a cron library run on one node per tick. It has the wrapper for robfig/cron; package
// gocronlock has the Locker and the Elector of gocron; for another library, [Job] is the part that is common.
//
// Who has no cron library yet needs none of this: pawl's own Schedule runs a job once per tick, with the same expressions:
//
//	plan, err := cronlock.Parse("CRON_TZ=Europe/Berlin 30 3 * * *")
//	…
//	err = locks.ScheduleOn("report", plan).Run(ctx, report)
//
// Schedule can do what no wrapper can, since it decides when to look: a node that dies in a run leaves the tick to another
// one, a tick that all have missed is made up, and a run's context ends when its lock is lost.
//
// # How a tick is known
//
// Every node is told by its own clock that the job is due, and asks for the tick that its clock has just passed. Two nodes that are
// due for one tick so ask for the same one, whatever the difference of their clocks. The first takes it, and it stays taken for a while
// after the run; the others are refused. Below it, the Mutex of the job's name is held, so that runs of one job do not overlap: a
// tick that comes while a run is under way is left out.
//
// # What is not promised
//
//   - A tick whose node dies is lost; so is one at which the store of the locks did not answer.
//   - A node whose clock is behind the others' by more than [Job.Skew] runs their ticks once more.
//   - If the lock is lost under a run (a pause, a store that is away for longer than the TTL), a node whose clock is behind may run
//     that tick too. The job is not told, since these libraries have no way to; it can ask pawl.FromContext for its token and claim
//     with package fence where the library passes it a context.
package cronlock
