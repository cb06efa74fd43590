package zklock

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/driver"
)

// card is the data of a pawl node: who holds or waits, for people. No client of the family reads the data of a lock node.
type card struct {
	Holder string `json:"holder,omitempty"`
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Note   string `json:"note,omitempty"`
}

const maxCard = 2048

// dataOf is what a request's node says: the value of a leader, exactly, as Curator's latches have their participant's id
// there; else who asks.
func dataOf(r *driver.Request) []byte {
	if r.Kind == driver.Leader {
		return append([]byte{}, r.Value...)
	}
	c := card{clip(r.Who.Label), clip(r.Who.Host), r.Who.PID, clip(r.Who.Note)}
	data, err := json.Marshal(c)
	if err != nil {
		return []byte{}
	}
	return data
}

func clip(s string) string {
	if len(s) <= maxCard {
		return s
	}
	return strings.ToValidUTF8(s[:maxCard], "")
}

// whoOf reads the data of a lock node. Another client's is its label, if it is a line of text: for Curator the host's
// address, for kazoo the identifier.
func whoOf(data []byte) driver.Holder {
	var c card
	if len(data) > 0 && data[0] == '{' && json.Unmarshal(data, &c) == nil {
		return driver.Holder{Label: c.Holder, Host: c.Host, PID: c.PID, Note: c.Note}
	}
	s := string(data)
	if len(s) > 200 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return driver.Holder{}
	}
	return driver.Holder{Label: s}
}
