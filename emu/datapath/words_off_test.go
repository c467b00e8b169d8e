//go:build !pagewords

package datapath

const countsPageWords = false
