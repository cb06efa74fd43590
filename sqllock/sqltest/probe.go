package sqltest

import (
	"bytes"
	"context"
	"database/sql"
	"time"
)

// answers reports whether the server does what it is asked for.
func answers(db *sql.DB) bool {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	return db.PingContext(ctx) == nil
}

// lingering reports whether the server only waits for processes of its former life to end.
func (s *Server) lingering(output []byte) bool {
	return bytes.Contains(output, []byte("still in use")) || bytes.Contains(output, []byte("is another postmaster"))
}
