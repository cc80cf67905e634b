"""A release: everything that a user installs, built without a container engine, and a check of it.

    trees        root file systems of the images, from Debian packages
    archives     the images, as OCI archives
    charting     the packaged charts, with the digests of the images
    sbom         lists of what is inside, in CycloneDX form
    validation   these lists compared with the published schema
    notes        release notes from the changelog
    push         copies images from archives into a registry; released itself, and needs only Python
    build        `make release`: all of it, with checksums
    check        `make release-check`: a registry, a cluster, an installation, an upgrade

The same commit and the same Debian packages give the same bytes: names are sorted, times are fixed.
"""
