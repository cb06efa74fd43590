// Package patterns holds the programs of docs/patterns.md, as tests: each mistake is seen to do harm, and each remedy to work.
package patterns
