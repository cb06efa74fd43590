package broken

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/driver"
)

// password is what the store was opened with, if it were one that is opened.
const password = "correct horse battery staple"

var secretMutants = []Mutant{
	{
		Rule: "secrets/no error shows one", Fault: "says which server it could not reach, and how",
		hooks: func() hooks {
			return hooks{sureOfSilence: errors.New("broken: no answer from redis://pawl:" + password + "@10.0.0.7")}
		},
	},
	{
		Rule: "secrets/no error shows one", Fault: "says what it was opened with when it is closed",
		hooks: func() hooks {
			return hooks{try: func(p *place, ctx context.Context, span int) (driver.Grant, error) {
				g, err := p.Place.Try(ctx, span)
				if errors.Is(err, driver.ErrNotDone) {
					err = fmt.Errorf("broken: postgres://pawl:%s@10.0.0.7: %w", password, err)
				}
				return g, err
			}}
		},
	},
}
