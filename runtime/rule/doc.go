// Package rule compiles the routes of services into the image of the URL string match table and the rule table, and keeps
// the indexes of rules, and of everything else the tables name, in place over changes. A Matcher takes requests to rules
// without any table, for what the card leaves to the host.
//
// It is pure: the same input gives the same image, and nothing depends on the order of a map. What the image means is
// written at the format url_node of the register map; the card walks it without help.
package rule
