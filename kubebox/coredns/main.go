// Command coredns is CoreDNS with the plugins that a cluster of test machines needs: names of services and pods,
// a cache, and the endpoints that say whether it works. Nothing is forwarded: there is no world outside.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// CoreDNS runs plugins in this order, whatever the order in its configuration.
	dnsserver.Directives = []string{"health", "ready", "errors", "cache", "loadbalance", "kubernetes"}
}

func main() {
	coremain.Run()
}
