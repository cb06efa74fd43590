module github.com/pawl-lock/pawl/cronlock

go 1.26.0

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/uuid v1.6.0
	github.com/pawl-lock/pawl v0.0.0
	github.com/pawl-lock/pawl/redislock v0.0.0
	github.com/robfig/cron/v3 v3.0.1
)

require (
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace (
	github.com/pawl-lock/pawl => ..
	github.com/pawl-lock/pawl/redislock => ../redislock
)
