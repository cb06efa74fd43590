package zklock

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/driver"
)

const hexDigits = "0123456789ABCDEF"

// escape makes one path element of a name. It is injective: '%' is always escaped, and so is whatever ZooKeeper or its
// clients refuse in a path: "/", NUL and other control characters, U+D800 to U+F8FF and U+FFF0 to U+FFFF, all beyond U+FFFF
// (a Java server sees two surrogates), bytes that are not UTF-8, and the names "." and "..". Ordinary names stay as they
// are.
func escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	if name == "zookeeper" { // beside the root "/" that is the server's own
		return "%7Aookeeper"
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if plain(r) {
			b.WriteString(name[i : i+n])
		} else {
			for _, c := range []byte(name[i : i+n]) {
				b.WriteByte('%')
				b.WriteByte(hexDigits[c>>4])
				b.WriteByte(hexDigits[c&15])
			}
		}
		i += n
	}
	return b.String()
}

func plain(r rune) bool {
	switch {
	case r < 0x20, r == '/', r == '%', r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
		return false
	}
	return true
}

// unescape is the name that escape made an element of, if one did.
func unescape(element string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(element); i++ {
		c := element[i]
		if c == '%' {
			if i+2 >= len(element) {
				return "", false
			}
			hi, lo := strings.IndexByte(hexDigits, element[i+1]), strings.IndexByte(hexDigits, element[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		b.WriteByte(c)
	}
	name := b.String()
	return name, name != "" && escape(name) == element
}

// cleanRoot checks a root path and removes slashes at its end. The root "/" is "".
func cleanRoot(root string) (string, error) {
	root = strings.TrimRight(root, "/")
	if root == "" {
		return "", nil
	}
	if root[0] != '/' {
		return "", fmt.Errorf("zklock: %w: a root is an absolute path such as /locks, not %q", driver.ErrInvalid, root)
	}
	for _, e := range strings.Split(root[1:], "/") {
		ok := e != "" && e != "." && e != ".." && utf8.ValidString(e)
		for _, r := range e {
			ok = ok && (plain(r) || r == '%')
		}
		if !ok {
			return "", fmt.Errorf("zklock: %w: the root %q has an element %q, which ZooKeeper refuses", driver.ErrInvalid, root, e)
		}
	}
	if root == "/zookeeper" || strings.HasPrefix(root, "/zookeeper/") {
		return "", fmt.Errorf("zklock: %w: the root /zookeeper is the server's own", driver.ErrInvalid)
	}
	return root, nil
}
