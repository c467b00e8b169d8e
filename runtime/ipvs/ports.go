package ipvs

import (
	"maps"
	"slices"
)

// ports are the names that ipvsadm -S writes for ports without -n: those of /etc/services that services behind a director
// have. The numbers are the same for TCP and UDP.
var ports = map[string]uint16{
	"ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "time": 37, "domain": 53, "tftp": 69, "gopher": 70, "http": 80,
	"www": 80, "kerberos": 88, "pop3": 110, "pop-3": 110, "sunrpc": 111, "nntp": 119, "ntp": 123, "imap2": 143, "imap": 143, "snmp": 161,
	"snmp-trap": 162, "ldap": 389, "https": 443, "submissions": 465, "urd": 465, "smtps": 465, "syslog": 514, "rtsp": 554, "submission": 587,
	"ldaps": 636, "domain-s": 853, "rsync": 873, "imaps": 993, "pop3s": 995, "socks": 1080, "openvpn": 1194, "ms-sql-s": 1433, "radius": 1812,
	"radius-acct": 1813, "mqtt": 1883, "nfs": 2049, "postgresql": 5432, "mysql": 3306, "ms-wbt-server": 3389, "sip": 5060, "sip-tls": 5061,
	"xmpp-client": 5222, "amqp": 5672, "amqps": 5671, "redis": 6379, "http-alt": 8080, "webcache": 8080, "secure-mqtt": 8883,
}

func portNames() []string { return slices.Sorted(maps.Keys(ports)) }
