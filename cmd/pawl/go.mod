module github.com/pawl-lock/pawl/cmd/pawl

go 1.26.0

require github.com/pawl-lock/pawl v0.0.0

require (
	github.com/creack/pty v1.1.24 // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	golang.org/x/tools v0.52.0 // indirect
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/go-echarts/go-echarts/v2 v2.6.7
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/mattn/go-isatty v0.0.24
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/pawl-lock/pawl/redislock v0.0.0
	github.com/pawl-lock/pawl/sqllock v0.0.0
	github.com/redis/rueidis v1.0.79
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/rogpeppe/go-internal v1.16.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.50.0
	golang.org/x/term v0.48.0
	modernc.org/libc v1.80.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	modernc.org/sqlite v1.62.0
)

replace github.com/pawl-lock/pawl => ../..

replace github.com/pawl-lock/pawl/sqllock => ../../sqllock

replace github.com/pawl-lock/pawl/redislock => ../../redislock
