module github.com/pawl-lock/pawl/bench

go 1.26

require github.com/pawl-lock/pawl v0.0.0

replace github.com/pawl-lock/pawl => ..
