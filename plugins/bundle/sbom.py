"""The bill of materials of the harness, in CycloneDX: every package that is installed beside Pacemark."""

from __future__ import annotations

from functools import cache
from importlib.metadata import distributions
from platform import python_version

from plugins.reports.checkout import VERSION

SBOM = "sbom.cdx.json"


@cache
def bill() -> bytes:
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    root = Component(name="pacemark", version=VERSION, type=ComponentType.APPLICATION, bom_ref="pacemark")
    python = Component(name="python", version=python_version(), type=ComponentType.PLATFORM, bom_ref="python")
    installed = {(package.name, package.version) for package in distributions() if package.name}
    packages = []
    for name, version in sorted(installed):
        purl = PackageURL("pypi", None, name.lower(), version)
        packages.append(Component(name=name, version=version, purl=purl, bom_ref=str(purl)))
    bom = Bom(components=[python, *packages])
    bom.metadata.component = root
    bom.register_dependency(root, [python, *packages])
    return JsonV1Dot6(bom).output_as_string(indent=1).encode() + b"\n"
