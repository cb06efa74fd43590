module github.com/pawl-lock/pawl/bench

go 1.26

require github.com/pawl-lock/pawl v0.0.0

replace github.com/pawl-lock/pawl => ..

require (
	github.com/pawl-lock/pawl/redislock v0.0.0
	github.com/redis/rueidis v1.0.79
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/pawl-lock/pawl/redislock => ../redislock
