package cli

import "os"

// cont does nothing here.
var cont os.Signal = os.Interrupt
