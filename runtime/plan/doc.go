// Package plan computes what a director carries: arithmetic over what a packet costs, how many pages there are and how fast
// connections come. It measures nothing and knows no card; what it is not given it takes from the documents that the card
// was designed after, and says so.
package plan
