//go:build !unix

package seckill

import (
	"errors"
	"os"
)

const canPause = false

func stopProcess(*os.Process) error     { return errors.ErrUnsupported }
func continueProcess(*os.Process) error { return errors.ErrUnsupported }
