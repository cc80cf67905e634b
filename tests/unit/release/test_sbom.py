"""Bills of materials: what is in them, and that the same lists give the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

from kubebox.slurm.packages import Package
from scripts.release import sbom

ROOT = Path(__file__).parents[3]
PACKAGE = Package("libc6", "2.41-12+deb13u1", "amd64", "glibc", "trixie", "a" * 64, "Package: libc6\n")


def test_package_is_named_as_scanners_name_it() -> None:
    """The purl of a Debian package has its suite and architecture, and a plus sign is escaped."""
    component = sbom.package_component(PACKAGE)
    assert component["purl"] == "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64&distro=debian-trixie"
    assert component["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]


def test_all_pinned_libraries_are_found() -> None:
    """Every line of the lock file that pins a library is a component, with its version."""
    text = (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    libraries = sbom.pinned_libraries(text)
    assert len(libraries) == text.count("==")
    assert all(library.hashes for library in libraries)
    assert {"aiohttp", "cryptography"} <= {library.name for library in libraries}


def test_order_of_parts_does_not_matter() -> None:
    """Two documents of the same parts are equal, serial number included; other parts have another one."""
    subject = sbom.image_component("slurmd", "26.05", f"sha256:{'b' * 64}", "amd64")
    parts = [
        sbom.package_component(PACKAGE),
        sbom.library_component(sbom.Library("PyYAML", "6.0.2", ("c" * 64,))),
    ]
    first, second = sbom.document(subject, parts), sbom.document(subject, parts[::-1])
    assert first == second
    other = json.loads(sbom.document(subject, parts[:1]))
    assert other["serialNumber"] != json.loads(first)["serialNumber"]


def test_subject_depends_on_all_parts() -> None:
    """References of dependencies are those of components, each once."""
    subject = sbom.wheel_component("0.1.0")
    text = (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    parts = [sbom.library_component(library) for library in sbom.pinned_libraries(text)]
    told = json.loads(sbom.document(subject, parts))
    (dependency,) = told["dependencies"]
    references = [component["bom-ref"] for component in told["components"]]
    assert dependency == {"ref": subject["bom-ref"], "dependsOn": references}
    assert len(set(references)) == len(references)
