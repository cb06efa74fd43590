package wire

import (
	"fmt"
	"strconv"
)

// Reply is what a server answers, in the terms of RESP2: a text, an integer, an array, an error in an array, or nothing (the
// zero Reply). Whatever RESP3 has besides is written in those: a number as text, a map as an array of keys and values.
type Reply struct {
	kind kind
	n    int64
	text string
	all  []Reply
}

type kind uint8

const (
	null kind = iota
	text
	integer
	array
	failure
)

// Text is a text.
func Text(s string) Reply { return Reply{kind: text, text: s} }

// Int is an integer.
func Int(n int64) Reply { return Reply{kind: integer, n: n} }

// Array is an array, which the Reply keeps.
func Array(all []Reply) Reply { return Reply{kind: array, all: all} }

// Failure is an error inside an array.
func Failure(r Refusal) Reply { return Reply{kind: failure, text: string(r)} }

func (r Reply) IsNull() bool  { return r.kind == null }
func (r Reply) IsArray() bool { return r.kind == array }
func (r Reply) IsInt64() bool { return r.kind == integer }

// Error is the Refusal that the server put into an array, or nil.
func (r Reply) Error() error {
	if r.kind == failure {
		return Refusal(r.text)
	}
	return nil
}

// ToString is the text.
func (r Reply) ToString() (string, error) {
	if r.kind != text {
		return "", r.wrong("a text")
	}
	return r.text, nil
}

// ToInt64 is the integer.
func (r Reply) ToInt64() (int64, error) {
	if r.kind != integer {
		return 0, r.wrong("an integer")
	}
	return r.n, nil
}

// AsInt64 is the integer, also one written as text.
func (r Reply) AsInt64() (int64, error) {
	if r.kind == text {
		return strconv.ParseInt(r.text, 10, 64)
	}
	return r.ToInt64()
}

// ToArray is the array.
func (r Reply) ToArray() ([]Reply, error) {
	if r.kind != array {
		return nil, r.wrong("an array")
	}
	return r.all, nil
}

// AsStrSlice is an array of texts, integers as decimals, anything else as "".
func (r Reply) AsStrSlice() ([]string, error) {
	if r.kind != array {
		return nil, r.wrong("an array")
	}
	out := make([]string, len(r.all))
	for i, x := range r.all {
		switch x.kind {
		case text:
			out[i] = x.text
		case integer:
			out[i] = strconv.FormatInt(x.n, 10)
		}
	}
	return out, nil
}

func (r Reply) wrong(want string) error {
	is := [...]string{"nothing", "a text", "an integer", "an array", "an error"}[r.kind]
	return fmt.Errorf("the answer is %s and not %s", is, want)
}
