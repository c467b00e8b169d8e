// Package ipvs reads what runs the Linux Virtual Server (dumps of ipvsadm, and keepalived.conf) and writes it as services
// and groups of a configuration. It reads texts and returns texts: no kernel, no names resolved, no files opened.
//
// Nothing is dropped in silence. What a configuration cannot say is listed with its line in Imported.Left, and stands as a
// comment before what was written.
package ipvs
