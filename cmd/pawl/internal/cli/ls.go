package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl"
)

// entry is one holder of one name, as ls and inspect print it in JSON.
type entry struct {
	Name    string  `json:"name"`
	Kind    string  `json:"kind"`
	Limit   int     `json:"limit,omitempty"`
	Waiters *int    `json:"waiters"` // null: not known
	Holders []owner `json:"holders"`
}

type owner struct {
	ID      string     `json:"id"`
	Label   string     `json:"label,omitempty"`
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Token   int64      `json:"token,omitempty"`
	Permits int        `json:"permits,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	TTL     *int64     `json:"ttl_ms"` // null: it never expires, or not known
}

func newEntry(i pawl.Info) entry {
	e := entry{Name: i.Name, Kind: i.Kind, Limit: i.Limit, Holders: []owner{}}
	if i.Waiters >= 0 {
		e.Waiters = &i.Waiters
	}
	for _, h := range i.Holders {
		o := owner{ID: h.ID, Label: h.Label, Host: h.Host, PID: h.PID, Reason: h.Note, Token: h.Token, Permits: h.Permits}
		if !h.Since.IsZero() {
			o.Since = &h.Since
		}
		if ms := h.Remaining.Milliseconds(); h.Remaining > 0 {
			o.TTL = &ms
		}
		e.Holders = append(e.Holders, o)
	}
	return e
}

func newLs(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the locks that are held",
		Long:    "List the locks that are held, those whose name begins with PREFIX, in order of name.",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := context.WithTimeout(c.Context(), g.timeout)
			defer stop()
			locks, err := g.client(ctx)
			if err != nil {
				return err
			}
			defer locks.Close()
			var found []pawl.Info
			for i, err := range locks.List(ctx, strings.Join(args, "")) {
				if err != nil {
					return storeFailure("ls", err)
				}
				found = append(found, i)
			}
			slices.SortFunc(found, func(a, b pawl.Info) int { return strings.Compare(a.Name, b.Name) })
			if asJSON {
				entries := []entry{}
				for _, i := range found {
					entries = append(entries, newEntry(i))
				}
				return json.NewEncoder(c.OutOrStdout()).Encode(entries)
			}
			if len(found) == 0 {
				g.say.note("no locks")
				return nil
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tKIND\tHOLDER\tHOST\tPID\tFENCE\tAGE\tTTL\tWAITERS")
			for _, i := range found {
				for _, h := range i.Holders {
					fmt.Fprintln(w, strings.Join(row(i, h), "\t"))
				}
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as a JSON array")
	return c
}

func row(i pawl.Info, h pawl.Holder) []string {
	some := func(s string) string {
		if s == "" || s == "0" {
			return "-"
		}
		return plain(s)
	}
	age, ttl, waiters := "-", "-", "-"
	if !h.Since.IsZero() {
		age = short(max(0, time.Since(h.Since)).Round(time.Second))
	}
	switch {
	case h.Remaining > 0:
		ttl = short(h.Remaining)
	case h.Remaining < 0:
		ttl = "never"
	}
	if i.Waiters >= 0 {
		waiters = strconv.Itoa(i.Waiters)
	}
	return []string{plain(i.Name), some(i.Kind), some(h.Label), some(h.Host), some(strconv.Itoa(h.PID)),
		some(strconv.FormatInt(h.Token, 10)), age, ttl, waiters}
}

// plain quotes a name that would disturb a table or a terminal.
func plain(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` || strings.ContainsRune(s, ' ') {
		return q
	}
	return s
}
