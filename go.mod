module github.com/pawl-lock/pawl

go 1.26
