//go:build tools

// The blank import makes this module depend on kwok's command, so that go.sum holds the checksum of everything kwok is
// built from.
package main

import _ "sigs.k8s.io/kwok/cmd/kwok"
