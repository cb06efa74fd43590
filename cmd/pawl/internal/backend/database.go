package backend

import (
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Database makes a pool of connections to the database server that raw names, for work beside the locks. It does no I/O.
// raw is of a Kind postgres or mysql, and forms are those of sqllock.Open. No error shows it.
func Database(raw string) (*sql.DB, error) {
	if Kind(raw) == "postgres" {
		c, err := pgx.ParseConfig(raw)
		if err != nil { // it quotes raw
			return nil, errors.New("the URL cannot be understood: write postgres://user:password@host:5432/database, with bytes that have a meaning in URLs as %XX")
		}
		return stdlib.OpenDB(*c), nil
	}
	bad := errors.New("the URL cannot be understood: write mysql://user:password@host:3306/database, with bytes that have a meaning in URLs as %XX")
	u, err := url.Parse(raw)
	if err != nil || strings.Trim(u.Path, "/") == "" {
		return nil, bad
	}
	q := u.Query()
	socket := q.Get("socket") // ours
	q.Del("socket")
	c, err := mysql.ParseDSN("/?" + q.Encode())
	if err != nil {
		return nil, bad
	}
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	c.ClientFoundRows = false // a row that was not changed does not count
	c.InterpolateParams = true
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, bad
	}
	return sql.OpenDB(connector), nil
}
