"""Container images without a container engine.

    oci        folders become layers, layers become images, images become one file that containerd imports
    nodes      the images that every node needs: pause and CoreDNS
    template   images imported once into a containerd folder that all nodes share

The same inputs give the same digest: names are sorted, times are fixed, nothing is compressed.
"""

from __future__ import annotations

from kubebox.images.oci import Image, Layer, write_bundle

__all__ = ["Image", "Layer", "write_bundle"]
