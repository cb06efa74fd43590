module github.com/pawl-lock/pawl/zklock

go 1.26

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/pawl-lock/pawl v0.0.0
)

replace github.com/pawl-lock/pawl => ..
