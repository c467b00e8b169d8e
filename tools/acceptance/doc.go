// Package acceptance holds no code: its tests use the product as its users do. They build splicectl, run it between
// network namespaces with real clients and servers, and read what it says through its own command line.
//
// With SPLICE_LONG=1 the tests run at full size.
package acceptance
