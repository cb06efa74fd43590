package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// setup is what must be known before the first statement: where the file is, and the prepared statements. It is found out
// at the first call, since New does no I/O, and again at the next one if that failed.
type setup struct {
	d     *Driver
	turns chan struct{} // held by the one who is finding out

	mu         sync.Mutex
	file       string
	info       os.FileInfo // of the file, to notice that another one has taken its place
	statements map[string]*sql.Stmt

	sawBoot atomic.Bool // the database was seen in this boot
	bell    bell        // the waker's
}

func (s *setup) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statements != nil
}

// ready finds out what is not known yet.
func (s *setup) ready(ctx context.Context) error {
	if s.done() {
		return nil
	}
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turns }()
	if s.done() {
		return nil
	}
	file, err := sqliteLocate(ctx, s.d.db)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.file = file
	s.mu.Unlock()
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	statements := make(map[string]*sql.Stmt)
	for name, section := range s.d.sections {
		if name == "schema" || section.rare {
			continue
		}
		st, err := s.d.db.PrepareContext(ctx, section.text)
		if err != nil {
			closeAll(statements)
			return s.d.whyUnfit(ctx, err)
		}
		statements[name] = st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info, s.statements = info, statements
	return nil
}

// whyUnfit looks whether a statement cannot be prepared because of the tables, and says how they differ.
func (d *Driver) whyUnfit(ctx context.Context, err error) error {
	if d.dialect.fault(err).again {
		return err
	}
	if missing, unfit := d.checkTables(ctx); unfit != nil {
		return unfit
	} else if missing {
		return fmt.Errorf("the table %s or one of its companions does not exist: call CreateSchema once: %w", d.opts.Table, err)
	}
	return err
}

func closeAll(statements map[string]*sql.Stmt) {
	for _, st := range statements {
		st.Close()
	}
}

// statement is a section of the dialect's file, prepared; nil if it is a rare one.
func (s *setup) statement(name string) *sql.Stmt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statements[name]
}

func (s *setup) path() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// where names the file, for errors.
func (s *setup) where() string {
	if file := s.path(); file != "" {
		return " in " + file
	}
	return ""
}

func (s *setup) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.statements)
}

// sameFile compares the file under the database's path with the one that was there at first. Whoever has the old one open
// would exclude nobody who opens the new one.
func (s *setup) sameFile() error {
	s.mu.Lock()
	file, info := s.file, s.info
	s.mu.Unlock()
	now, err := os.Stat(file)
	if err != nil || !os.SameFile(now, info) {
		return errNoFile
	}
	return nil
}

// flush makes the last commit survive a power loss. In WAL mode, where commits are not flushed one by one, the -wal file
// has it; in the other modes there is no such file, and each commit is flushed by SQLite. No process keeps a lock on the
// -wal file, so opening and closing it here takes none away, which closing the database file itself would.
func (s *setup) flush() error {
	file := s.path()
	for _, name := range []string{file + "-wal", filepath.Dir(file)} {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = f.Sync()
		f.Close()
		if err != nil && name != filepath.Dir(file) { // not every system can flush a folder
			return err
		}
	}
	return nil
}

var errNoFile = errors.New("the database file was deleted or replaced while it was in use: restart all programs that use it")
