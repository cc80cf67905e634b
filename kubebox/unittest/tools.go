//go:build tools

// The blank import makes this module depend on the command of helm-unittest, so that go.sum holds the checksum of
// everything it is built from.
package main

import _ "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
