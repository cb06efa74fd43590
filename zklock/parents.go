package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// mkdir makes a directory and whatever is missing above it, as containers, which the servers remove when they have been
// empty for a while. What exists is not touched, and needs no rights.
func (d *Driver) mkdir(ctx context.Context, dir string) error {
	_, err := call(ctx, func() (string, error) { return d.conn.CreateContainer(dir, []byte{}, zk.FlagContainer, d.acl) })
	switch {
	case err == nil, errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		i := strings.LastIndexByte(dir, '/')
		if i <= 0 {
			return fmt.Errorf("zookeeper: the node / does not exist: is the server's chroot wrong?: %w", err)
		}
		if err := d.mkdir(ctx, dir[:i]); err != nil {
			return err
		}
		return d.mkdir(ctx, dir)
	}
	return describe("create the directory", dir, err)
}
