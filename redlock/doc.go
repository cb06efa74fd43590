// Package redlock is a quorum over an odd number of independent stores, itself a pawl driver: it locks as long as more than
// half of its members work, and needs none of them in particular. The idea is Redis' Redlock (antirez, 2014); what is
// different here is the token, what happens after a restart, and what becomes of every answer that comes late or never.
//
//	locks := pawl.New(redlock.New([]driver.Driver{a, b, c, d, e}, nil))
//
// docs/redlock.md weighs the known objections to it.
//
// # Guarantees
//
//   - Exclusion. Two conflicting holds are never trusted at the same time, as long as members keep what they confirmed
//     for as long as they run, and clocks run at the same rate within 1 %. A member that restarts may have forgotten
//     everything.
//   - Tokens. A later conflicting hold has a larger token, whatever the members' clocks say, as long as its quorum and
//     that of the hold before share a member that kept its data. (Any two quorums share a member.)
//   - Time. An acquisition, a renewal and a refusal take as long as the slowest member that is needed for the answer. A
//     release gives the other members as long again, at most. No request to a member takes longer than
//     [Options.NodeTimeout].
//   - Nothing stays behind. What a failed, cancelled or lost request may have got is taken back at every member, in the
//     background, until the member has answered or the TTL is over.
//
// # Not guaranteed
//
//   - Order. There is no line across members: Fair and Leader are errors.ErrUnsupported, a newcomer may pass a waiter, and
//     a waiting Write does not stop new Reads.
//   - Exclusion after an operator deleted a key at one member, or a member lost what it confirmed without a restart
//     (eviction, a replica promoted in its place): the lease alone may be broken then. A resource that checks tokens
//     (package fence) is safe.
//   - A Once that is remembered, or a name that is kept (MinHold), for longer than MaxTTL, when so many members restart
//     empty meanwhile that no majority remembers.
//   - Semaphores over failing members. Two majorities share a member, which is enough for locks, but not for a count. A
//     permit of L needs more than N·L/(L+1) of N members: 4 of 5 for two or three permits, and all members for N-1
//     permits or more.
//
// # How it works
//
// A request asks all members at once, without waiting in any member's line: contenders that stand first in different
// lines would wait for one another. Its hold counts from before the first request, and the drift of the members' clocks (1
// % of the TTL and 2 ms) is taken off: validity = TTL − elapsed − drift.
//
// Each member that grants proposes a token. The largest of the first majority is the hold's; the end of its interval is
// written back (driver.Raiser) to each member that still has the hold, and only when a majority has confirmed that, the
// grant is reported. Members that vote later are told too. WithoutToken leaves this round out; if one member cannot raise,
// all tokens are 0.
//
// A renewal counts the members that confirm the hold. If they are a majority, the others are filled again, with the same
// hold, and told the token; members where an undo of the hold may still be on its way are not asked again. A hold that a
// majority does not have is lost, even if filling it again would succeed: it may have been stolen.
//
// A release asks all members, waits for refills and late votes that are on their way, and repeats what was not answered.
//
// # Restarts
//
// A member that implements driver.Incarnated is asked, in the round of the write-back and so at no cost in time, in which
// life it is. If that began less than [Options.MaxTTL] ago, its vote does not count: every hold that it may have forgotten
// is over only then. That must be known after the vote was given, not before, since the member may restart in between; so
// it is asked at each acquisition, not now and then. A client that has seen an earlier life believes the member's word on
// its age only as far as it fits what it saw itself. Without a write-back the question is asked beside the vote, and again
// if the vote came more than 2 ms after its answer, in which no store restarts.
//
// So a new quorum grants nothing for MaxTTL after its members were first started; the error says for how long. A member
// that cannot tell its life is taken to keep its data. Durable says so of all.
//
// # Waiting
//
// A place that waits and was refused listens at all members (driver.Watcher), with one watch for a name however many
// places wait. It is told of changes a random moment later, more so when they follow one another, so that contenders do
// not come at the same instant. When votes were divided, HeldError.Again is random and grows up to half a second.
//
// # Members
//
// Each member must be a store of its own, which fails by itself: another server on another machine, without replicas that
// may take its place. New refuses an even number (one more member that may fail, and none that may be missed), fewer than
// three, and the same driver twice; two drivers of one store are found at the first acquisition, if the store tells its
// life. Members may be of different kinds; a kind of lock that one of them does not carry is errors.ErrUnsupported.
//
// Errors name members by their number in New, from 1, and pass on what the member's driver said.
package redlock
