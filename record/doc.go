// Package record commits a piece of work together with the record that it was done, in the caller's own SQL database: the
// side effect of a request happens exactly once, however often the request comes.
//
// pawl.Once is for work of any kind. Its record is kept in the store of the locks, apart from what the work changes, so a
// process that dies between the two leaves the work to be done again. [OnceInTx] is for work in one database: the record is a
// row that is written in the transaction of the work, so there is nothing between them.
//
//	order, err := record.OnceInTx(ctx, locks, db, records, "order:"+requestID, 24*time.Hour,
//		func(ctx context.Context, tx *sql.Tx) (Order, error) {
//			return insertOrder(ctx, tx, cart)
//		})
//
// # What is promised
//
// For each key and window at most one transaction is committed, and all callers that get an answer get that one's. This rests on the
// primary key of the table alone. The lock only keeps callers from doing the same work at the same time to no end: it may be lost,
// its store may forget it, its holder may be paused for as long as it likes.
//
// # What is not
//
// Only what the function does through its transaction is bound to the record. A mail that it sends is sent as often as the
// function runs, and it may run several times: after an error, a crash, a lost lock, a conflict with another transaction.
// The window is counted on the database's clock.
package record
